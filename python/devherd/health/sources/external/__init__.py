"""Sources `external-<name>`: programs and files of the operator's, each listened to by a process of its own.

`intervals`, `running` and `file` are the three ways to listen, `report` is what was said.
"""
