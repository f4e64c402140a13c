"""The programs of an instance, as data."""

import importlib
import os
import socket
from pathlib import Path

import pytest

from devherd import fork
from devherd.config.api_access import ApiAccess
from devherd.config.resolved import ResolvedConfig, write_resolved
from devherd.settings import Settings
from devherd.supervisor.programs import DEVHERD
from devherd.supervisor.sandbox import Sandbox


def test_the_module_of_each_program_has_its_main_function():
    """It is named by a word, and imported in the child alone."""
    assert all(callable(importlib.import_module(program.module).main) for program in DEVHERD.children)


@pytest.mark.parametrize(
    ("host", "ca", "may_find"),
    [("api.example.com", "PEM", True), ("10.96.0.1", "PEM", False), ("fd00::1", "PEM", False), ("10.96.0.1", "", True)],
)
@pytest.mark.parametrize("program", ["kubernetes", "dra"])
def test_an_api_server_is_found_by_its_name_and_believed_by_the_systems_certificates(
    tmp_path, program, host, ca, may_find
):
    """Defect: the sandbox hid /etc/hosts, /etc/resolv.conf and /etc/ssl. Where none is needed, none is there."""
    settings = Settings(run_dir=tmp_path, kubeconfig=tmp_path / "kubeconfig")
    config = ResolvedConfig(common=settings, api=ApiAccess(host=host, ca=ca))
    write_resolved(settings.resolved_config_file, config)
    access = next(one for one in DEVHERD.children if one.group == program).may(settings, "a")
    assert (Path("/etc") in access.read) is may_find
    if not may_find:
        return

    def look_up():
        Sandbox(access).enter()
        return 0 if socket.getaddrinfo("localhost", 443) else 1

    assert os.waitstatus_to_exitcode(os.waitpid(fork.forked("test", look_up), 0)[1]) == 0


def test_a_dra_process_may_not_write_above_the_directory_of_cdi_specs(tmp_path):
    """Defect: until the scanner made that it was /var/run, where others have files. A new sandbox has it."""
    settings = Settings(run_dir=tmp_path / "run", host_root=tmp_path)
    settings.run_dir.mkdir()
    config = ResolvedConfig(common=settings, cdi_dir=Path("/var/run/cdi"))
    write_resolved(settings.resolved_config_file, config)
    (tmp_path / "var/run").mkdir(parents=True)
    access = next(one for one in DEVHERD.children if one.group == "dra").may(settings, "a")

    assert config.cdi_directory in access.write
    assert not any(config.cdi_directory.parent.is_relative_to(path) for path in access.write)
    assert config.cdi_directory in access.follows
