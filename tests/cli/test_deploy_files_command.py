"""`devherd deploy-files`: whoever has only the wheel has what installs it."""

from pathlib import Path

import pytest
from command_line import devherd

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
NOT_WRITTEN = {"Containerfile"}  # builds the image from the sources
SHIPPED = {
    str(file.relative_to(DEPLOY)): file.read_bytes()
    for file in DEPLOY.rglob("*")
    if file.is_file() and file.name not in NOT_WRITTEN
}


def written(directory):
    return {str(file.relative_to(directory)): file.read_bytes() for file in directory.rglob("*") if file.is_file()}


def test_the_files_of_deploy_are_written(tmp_path):
    """All of them: a new file in deploy/ needs its link in python/devherd/deploy, by which a wheel has it."""
    outcome = devherd("deploy-files", tmp_path / "new" / "share")
    assert (outcome.code, outcome.stderr) == (0, "")
    assert written(tmp_path / "new" / "share") == SHIPPED
    assert sorted(outcome.stdout.splitlines()) == sorted(str(tmp_path / "new" / "share" / name) for name in SHIPPED)


def test_the_package_has_links_to_the_files_and_no_copies():
    """A copy would be another file tomorrow."""
    packaged = ROOT / "python" / "devherd" / "deploy"
    found = {str(path.relative_to(packaged)): path for path in packaged.rglob("*") if not path.is_dir()}
    links = [f"ln -sr deploy/{name} python/devherd/deploy/{name}" for name in sorted(SHIPPED.keys() - found.keys())]
    assert not links, "\n".join(["these links are missing:", *links])
    assert found.keys() - SHIPPED.keys() == set()
    assert [name for name, path in found.items() if not path.is_symlink() or path.resolve() != DEPLOY / name] == []


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
