"""AMD's plugin: flags only."""

from devherd.importers.command_line import Invocation, flags
from devherd.importers.imported import Imported

_LOGGING = {"logtostderr", "alsologtostderr", "stderrthreshold", "v", "vmodule", "log_dir", "log_link"} | {
    "log_backtrace_at",
    "logbuflevel",
}
FLAGS = frozenset({"pulse", "resource_naming_strategy", "driver_type"} | _LOGGING)
_SWITCHES = frozenset({"logtostderr", "alsologtostderr"})


def from_command_line(invocation: Invocation) -> Imported:
    """The configuration that does the same. Raises UsageError for a flag that the plugin does not know."""
    imported = Imported("amd")
    given = {name: values[-1] for name, values in flags(invocation.flag_words, _SWITCHES, FLAGS).items()}
    options = {}
    if given.get("resource_naming_strategy", "single") != "single":
        options["naming"] = given["resource_naming_strategy"]
    if given.get("driver_type"):
        options["driver_type"] = given["driver_type"].replace("-", "_")
    imported.say("vendors.amd", options)
    if "pulse" in given:
        imported.note("-pulse is left out: health is always polled, each `health.poll`")
    if given.keys() & _LOGGING:
        imported.note("log flags are left out: see `log_level` and `log_format`")
    return imported
