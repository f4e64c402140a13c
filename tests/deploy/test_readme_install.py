"""The README's lines for a machine without Kubernetes install the wheel that was built, whatever an index offers."""

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

README = (Path(__file__).parents[2] / "README.md").read_text()
BUILT, OF_SOMEBODY_ELSE = "0.1.0", "99"
BY_NAME = "pip install --find-links dist devherd && devherd run   # as root"
"""What the README had: pip takes the highest version of what lies there and what an index offers."""


def commands(text):
    """The commands of the text's shell lines that make an environment, install something in one, or link to it."""
    blocks = re.findall(r"^```sh\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    lines = [line.partition(" #")[0] for block in blocks for line in block.splitlines()]
    parts = [part.strip() for line in lines for part in line.split("&&")]
    return [part for part in parts if re.search(r"\b(pip3?|pipx|uv|venv|ln)\b", part)]


def put_wheel(directory, version):
    """A wheel of devherd's name that holds nothing but its version."""
    directory.mkdir(parents=True)
    about = f"devherd-{version}.dist-info"
    path = directory / f"devherd-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("devherd.py", f"VERSION = {version!r}\n")
        archive.writestr(f"{about}/METADATA", f"Metadata-Version: 2.1\nName: devherd\nVersion: {version}\n")
        archive.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{about}/RECORD", f"devherd.py,,\n{about}/METADATA,,\n{about}/WHEEL,,\n{about}/RECORD,,\n")
    return path


def installed(place, lines):
    """The version that these commands install below a directory, beside an index with a higher one."""
    put_wheel(place / "dist", BUILT)
    other = put_wheel(place / "index/devherd", OF_SOMEBODY_ELSE)
    (other.parent / "index.html").write_text(f'<a href="{other.name}">{other.name}</a>')
    environment = place / "opt/devherd"
    if not any("venv" in line for line in lines):
        subprocess.run([sys.executable, "-m", "venv", environment], check=True)
    programs = f"{environment}/bin:{Path(sys.executable).parent}:{os.environ['PATH']}"
    index = {"PIP_INDEX_URL": (place / "index").as_uri(), "PIP_CONFIG_FILE": os.devnull, "PATH": programs}
    for line in lines:
        moved = line.replace("/opt/devherd", str(environment))
        subprocess.run(moved, shell=True, cwd=place, env=os.environ | index, check=True, capture_output=True)
    shown = subprocess.run(
        [environment / "bin/python", "-c", "import devherd; print(devherd.VERSION)"],
        cwd=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return shown.stdout.strip()


@pytest.mark.parametrize(
    ("text", "version"),
    [(README, BUILT), (f"```sh\n{BY_NAME}\n```\n", OF_SOMEBODY_ELSE)],
    ids=["the README", "a line that installs by name"],
)
def test_the_readmes_lines_install_the_wheel_that_was_built_and_nothing_of_that_name_from_an_index(
    tmp_path, text, version
):
    """Defect: as root, they would have run whatever an index may one day have under an unpublished name."""
    lines = commands(text)
    assert any("install" in line for line in lines)
    assert installed(tmp_path, lines) == version
