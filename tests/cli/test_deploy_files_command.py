"""`devherd deploy-files`: whoever has only the wheel has what installs it."""

from pathlib import Path

import pytest
from command_line import devherd

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
PACKAGED = ROOT / "python" / "devherd" / "deploy"
SHIPPED = {str(path.relative_to(PACKAGED)): path.read_bytes() for path in PACKAGED.rglob("*") if path.is_file()}
NOT_SHIPPED = ("Containerfile", "image", "release.py", "__pycache__")  # build from the sources, and bytecode of those


def written(directory):
    return {str(file.relative_to(directory)): file.read_bytes() for file in directory.rglob("*") if file.is_file()}


def test_the_files_are_written(tmp_path):
    """All that the package has, and each is named."""
    outcome = devherd("deploy-files", tmp_path / "new" / "share")
    assert (outcome.code, outcome.stderr) == (0, "")
    assert written(tmp_path / "new" / "share") == SHIPPED
    assert sorted(outcome.stdout.splitlines()) == sorted(str(tmp_path / "new" / "share" / name) for name in SHIPPED)


def test_the_package_has_a_link_to_each_file_of_deploy():
    """By which a wheel has it; a copy would be another file tomorrow."""
    files = {path.relative_to(DEPLOY) for path in DEPLOY.rglob("*") if path.is_file()}
    there = {str(path) for path in files if path.parts[0] not in NOT_SHIPPED}
    linked = {name: (DEPLOY / name).resolve() for name in there} | {"man/devherd.1": ROOT / "docs/devherd.1"}
    linked |= {name: ROOT / "docs" / name for name in ("install.md", "kubernetes.md", "switch.md")}
    missing = [f"ln -sr deploy/{name} python/devherd/deploy/{name}" for name in sorted(there - SHIPPED.keys())]
    assert not missing, "\n".join(["make these links:", *missing])
    links = {str(path.relative_to(PACKAGED)): path for path in PACKAGED.rglob("*") if not path.is_dir()}
    assert {name: path.resolve() for name, path in links.items()} == linked
    assert [name for name, path in links.items() if not path.is_symlink()] == []


def test_a_second_time_changes_nothing(tmp_path):
    """And says nothing."""
    devherd("deploy-files", tmp_path)
    outcome = devherd("deploy-files", tmp_path)
    assert (outcome.code, outcome.stdout, outcome.stderr) == (0, "", "")


def test_a_file_that_was_edited_is_kept_unless_it_is_to_be_replaced(tmp_path):
    """And while it is kept nothing else is written: not half of a new version."""
    (tmp_path / "systemd").mkdir()
    (tmp_path / "systemd" / "devherd.service").write_text("mine\n")

    outcome = devherd("deploy-files", tmp_path)
    assert outcome.code == 2
    assert outcome.error_line == (
        f"devherd: did not write to {tmp_path} — different files are there: systemd/devherd.service"
        " — give another directory, or --replace"
    )
    assert written(tmp_path) == {"systemd/devherd.service": b"mine\n"}

    assert devherd("deploy-files", tmp_path, "--replace").code == 0
    assert written(tmp_path) == SHIPPED


@pytest.mark.parametrize("below", ["file", "file/below"])
def test_a_directory_that_cannot_be_written_is_an_error_of_one_line(tmp_path, below):
    """That names it."""
    (tmp_path / "file").write_text("")
    outcome = devherd("deploy-files", tmp_path / below)
    assert outcome.code == 2
    assert f"cannot write to {tmp_path / below}" in outcome.error_line
