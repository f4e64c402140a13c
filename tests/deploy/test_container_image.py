"""The image: every step of the Containerfile is carried out by buildah.

What this shows: the file is valid, everything it copies is in the checkout and let through by .dockerignore, its stages
fit together, and the image starts `devherd run`. What it does not show: that the two base images from Docker Hub, apt
and PyPI give what is asked of them. In their place stands busybox with programs that write down what they were told.
"""

import json
import os
import shutil
import stat
import subprocess
import tomllib
from pathlib import Path

import pytest
from unshared import skip_without_namespaces, unshared

ROOT = Path(__file__).parents[2]
CONTAINERFILE = ROOT / "deploy" / "Containerfile"

STAND_INS = {
    "usr/bin/apt-get": 'echo "apt-get $*" >&2',
    "usr/bin/pip": """
        echo "pip $*" >&2
        for wheel; do :; done   # the last argument
        [ -s "$wheel" ] && echo "installed ${wheel##*/}" > /opt/devherd/bin/devherd
    """,
    "usr/bin/python3": """
        for directory; do :; done
        echo "python $*" >&2
        mkdir -p "$directory/bin"
        echo 'echo "pip $*" >&2' > "$directory/bin/pip"
        echo 'echo "maturin $*" >&2; mkdir /wheels; find . -type f | tee /wheels/devherd-1-any.whl >&2' \
            > "$directory/bin/maturin"
        chmod +x "$directory"/bin/*
    """,
}


class Builder:
    """buildah with a store of its own, and nothing of it left behind."""

    def __init__(self, buildah, directory):
        self._directory = directory
        store = ["--root", directory / "store", "--runroot", directory / "run", "--storage-driver", "vfs"]
        self._command = [*unshared("/var/lib", "/run"), buildah, *store]
        (directory / "policy.json").write_text('{"default": [{"type": "insecureAcceptAnything"}]}')

    def __call__(self, *arguments):
        environment = {**os.environ, "TMPDIR": str(self._directory), "HOME": str(self._directory)}
        done = subprocess.run(
            [*self._command, *arguments], env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    def build(self, context, *arguments):
        return self(
            "bud", "--isolation", "chroot", "--pull-never", "--signature-policy", self._directory / "policy.json",
            *arguments, context,
        )  # fmt: skip


@pytest.fixture(scope="module")
def built(tool, tmp_path_factory):
    """The built image's configuration, and what the build said."""
    skip_without_namespaces()
    directory = tmp_path_factory.mktemp("image")
    build = Builder(tool("buildah"), directory)
    base = make_base(directory / "base", tool("busybox"))
    build.build(base, "--tag", "localhost/base")
    said = build.build(
        ROOT, "--file", CONTAINERFILE, "--tag", "localhost/devherd",
        "--build-arg", "RUST_IMAGE=localhost/base", "--build-arg", "PYTHON_IMAGE=localhost/base",
        "--build-arg", "VERSION=1.2.3", "--build-arg", "REVISION=abcdef",
    )  # fmt: skip
    inspected = json.loads(build("inspect", "--type", "image", "localhost/devherd"))
    return inspected["OCIv1"]["config"], said


def make_base(directory, busybox):
    """A context whose image has a shell, and the stand-ins where the real images have the real programs."""
    for name, script in {"bin/.keep": "", **STAND_INS}.items():
        path = directory / "tree" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
    shutil.copy(busybox, directory / "tree" / "bin" / "busybox")
    for applet in ("sh", "cat", "find", "tee", "mkdir", "chmod"):
        (directory / "tree" / "bin" / applet).symlink_to("busybox")
    (directory / "tree" / "usr" / "bin" / "python").symlink_to("python3")
    (directory / "Containerfile").write_text("FROM scratch\nCOPY tree /\n")
    return directory


def test_the_image_runs_devherd_run(built):
    """A container started without arguments is the supervisor; with arguments, any other command of devherd."""
    config, _ = built
    assert (config["Entrypoint"], config["Cmd"]) == (["devherd"], ["run"])
    path = next(entry for entry in config["Env"] if entry.startswith("PATH="))
    assert path.startswith("PATH=/opt/devherd/bin:")


def test_the_image_says_what_it_is(built):
    """Its labels are OCI's, with version and revision; the revision is the one on /metrics."""
    config, _ = built
    labels = {name.removeprefix("org.opencontainers.image."): value for name, value in config["Labels"].items()}
    assert {"title": "devherd", "licenses": "Apache-2.0", "version": "1.2.3", "revision": "abcdef"}.items() <= (
        labels.items()
    )
    assert "DEVHERD_REVISION=abcdef" in config["Env"]


def test_the_build_sees_the_sources_and_nothing_else(built):
    """Nothing else that lies in the checkout goes into a build: no build output, no history, no secret."""
    _, said = built
    seen = {line for line in said.splitlines() if line.startswith("./")}
    assert {"./pyproject.toml", "./Cargo.lock", "./rust/src/lib.rs", "./python/devherd/py.typed"} < seen
    let_through = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert {Path(line).parts[0] for line in seen} <= let_through
    assert not [line for line in seen if line.endswith((".so", ".pyc"))]


def test_what_is_installed_is_pinned(built):
    """Both pip runs take the versions of constraints.txt, and cargo those of Cargo.lock."""
    _, said = built
    pip = [line for line in said.splitlines() if line.startswith("pip ")]
    assert len(pip) == 2
    assert all("constraints.txt" in line for line in pip)
    assert any(line.startswith("maturin build --release --locked ") for line in said.splitlines())


def test_every_path_that_the_build_files_name_goes_into_the_build():
    """Cargo and maturin refuse a manifest that names a file which is not there."""
    let_through = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    cargo = tomllib.loads((ROOT / "Cargo.toml").read_text())
    targets = [cargo["lib"], *cargo.get("bench", []), *cargo.get("test", []), *cargo.get("bin", [])]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    named = [target["path"] for target in targets if "path" in target]
    named += [
        project["project"]["readme"],
        *project["project"]["license-files"],
        project["tool"]["maturin"]["python-source"],
    ]
    assert [path for path in named if Path(path).parts[0] not in let_through] == []
