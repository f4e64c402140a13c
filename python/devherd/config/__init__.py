"""The configuration from options, environment, file and defaults; all errors are reported, each with its key path.

`chosen_file` finds the file, `loader` reads and validates it (`yaml_file`, `model`, `checks`), `resolution` converts it
to plain values (`resolved`), which the other processes read. `resolved` and `chosen_file` need neither pydantic nor
YAML; only the loader and commands import the other modules.
"""
