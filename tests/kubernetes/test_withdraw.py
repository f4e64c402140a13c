"""`devherd dra withdraw`: what it removes, what it leaves, and when it refuses."""

import json
import socket

import pytest
from published_node import NODE

from devherd.cli import commands
from devherd.errors import AlreadyRunningError, ExitCode, UnreachableError


def slice_of(name, driver, node=NODE):
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    return {"metadata": {"name": name}, "spec": {"driver": driver, "nodeName": node, "pool": pool}}


@pytest.fixture
def withdraw(tmp_path, server, monkeypatch):
    """The command on this node, with a kubeconfig file."""
    monkeypatch.setenv("NODE_NAME", NODE)
    place = {"server": f"https://127.0.0.1:{server.port}", "certificate-authority": str(server.directory / "ca.crt")}
    config = {
        "current-context": "it",
        "clusters": [{"name": "it", "cluster": place}],
        "users": [{"name": "it", "user": {"tokenFile": str(server.directory / "token")}}],
        "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
    }
    file = tmp_path / "kubeconfig"
    file.write_text(json.dumps(config))
    options = ["--run-dir", str(tmp_path / "run"), "--kubeconfig", str(file)]
    return lambda *words: commands.parsed(["dra", "withdraw", *options, *words])()


@pytest.fixture
def store(server):
    """Slices of devherd for two drivers, one of another program, one of another node."""
    found = server.store
    found.create(slice_of("one", "gpu.amd.com"), "devherd")
    found.create(slice_of("two", "rdma.devherd.io"), "devherd")
    found.create(slice_of("vendors", "gpu.nvidia.com"), "gpu-kubelet-plugin")
    found.create(slice_of("elsewhere", "gpu.amd.com", "node-2"), "devherd")
    return found


def test_the_slices_that_devherd_has_written_for_this_node_are_removed(withdraw, store, capsys):
    """Those of other programs and nodes stay; with nothing to remove it says so."""
    assert withdraw() == ExitCode.DONE
    assert sorted(store.slices) == ["elsewhere", "vendors"]
    assert withdraw() == ExitCode.DONE
    assert capsys.readouterr().out.splitlines() == [
        "one: removed",
        "two: removed",
        "node-1 has no slices that devherd has written",
    ]


def test_one_driver_may_be_chosen_and_all_be_tried(withdraw, store, capsys):
    """A trial changes nothing, and may run beside an instance."""
    assert withdraw("--dry-run") == ExitCode.DONE
    assert withdraw("--driver", "rdma.devherd.io") == ExitCode.DONE
    assert withdraw("--driver", "x.example.com") == ExitCode.DONE
    assert sorted(store.slices) == ["elsewhere", "one", "vendors"]
    assert capsys.readouterr().out.splitlines() == [
        "one: would be removed",
        "two: would be removed",
        "two: removed",
        "node-1 has no slices of x.example.com that devherd has written",
    ]


def test_it_refuses_while_an_instance_publishes(withdraw, store, tmp_path, monkeypatch):
    """They would be back at once. One that serves device plugins publishes nothing."""
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    with socket.socket(socket.AF_UNIX) as control:
        control.bind(str(run_dir / "supervisor.sock"))
        control.listen()
        config = run_dir / "config.json"

        def in_force(front_end):
            from devherd.config.loader import resolve
            from devherd.config.model import Config
            from devherd.config.resolved import write_resolved

            write_resolved(config, resolve(Config.model_validate({"front_end": front_end})))

        in_force("dra")
        with pytest.raises(AlreadyRunningError, match="would write them again at once") as caught:
            withdraw()
        assert caught.value.exit_code == ExitCode.ALREADY_RUNNING
        assert len(store.slices) == 4
        assert withdraw("--dry-run") == ExitCode.DONE
        in_force("device_plugin")
        assert withdraw() == ExitCode.DONE
    assert len(store.slices) == 2


def test_what_cannot_be_removed_or_read_is_said_with_the_right_to_add(withdraw, store, server, capsys):
    """The others are removed."""
    server.refusals["DELETE"] = 403, "resourceslices is forbidden"
    assert withdraw() == ExitCode.PROBLEM_FOUND
    told = capsys.readouterr().err.splitlines()
    assert [each.partition(" — ")[0] for each in told] == [
        "devherd: cannot remove slice one",
        "devherd: cannot remove slice two",
    ]
    assert "resources: [resourceslices], verbs: [list, watch, create, update, delete]" in told[0]
    server.refusal = 404, "the server could not find the requested resource"
    with pytest.raises(UnreachableError, match=r"use Kubernetes 1\.34 or newer"):
        withdraw()


def test_without_an_api_server_it_says_what_to_give(monkeypatch, tmp_path):
    """Exit code 4."""
    monkeypatch.setenv("NODE_NAME", NODE)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(UnreachableError, match="give --kubeconfig"):
        commands.parsed(["dra", "withdraw", "--run-dir", str(tmp_path)])()
