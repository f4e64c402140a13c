"""What `ps` shows of a process instead of the supervisor's command line, which a fork inherits."""

import setproctitle

from devherd import _native
from devherd.settings import Settings


def entitle(name: str, settings: Settings) -> None:
    """Let the process be seen as what it is. `name` is the child's in supervisorctl, and what `top` shows."""
    setproctitle.setproctitle(title(name, settings))  # changes the shorter name too, to less than is wanted
    _native.set_process_name(name)


def title(name: str, settings: Settings) -> str:
    """`devherd: resource nvidia.com/gpu`, and the options that distinguish instances."""
    kind, _, key = name.partition(":")
    resource = [key.replace("_", "/", 1)] if key else []  # the domain of a resource holds no underscore
    options = [f"--{option.replace('_', '-')}={value}" for option, value in settings.given_options]
    return " ".join(["devherd:", kind, *resource, *options])
