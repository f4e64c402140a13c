"""The floor of a resource child: devherd's own supervisor with a bare `grpc.aio` server in place of each of them.

    python bare_herd.py OPTIONS       as `devherd run OPTIONS`

Forked from the same warmed-up process at the same moment of its life, so what differs is what a child adds.
"""

import asyncio
import os
import sys
from dataclasses import replace

import bare_plugin

from devherd import config as configuration
from devherd.child import Child
from devherd.cli.common_options import add, load_config
from devherd.cli.parser import Parser
from devherd.config.resolved import Config
from devherd.settings import Settings
from devherd.supervisor.programs import DEVHERD
from devherd.supervisor.run import run

NEVER = 1e9
"""A bare server has no heartbeat."""


def bare(child: Child) -> int:
    """Serve and register under the name of the resource, until killed."""
    child.beat()
    asyncio.run(bare_plugin.serve(child.settings.kubelet_dir, child.name.partition(":")[2].replace("_", "/", 1)))
    return 0


def load(running: Settings | None) -> Config:
    """As `devherd run` does."""
    parser = Parser(prog="bare_herd.py")
    add(parser)
    arguments = parser.parse_args(sys.argv[2:])
    return configuration.resolve(configuration.reload(running, os.environ) if running else load_config(arguments))


if __name__ == "__main__":
    children = tuple(replace(program, main=bare) if program.per_file else program for program in DEVHERD.children)
    sys.exit(run(load, replace(DEVHERD, children=children), NEVER))
