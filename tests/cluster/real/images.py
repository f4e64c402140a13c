"""The container images of the cluster's pods: devherd's by its Containerfile, on stand-ins for its two base images.

Real are the Containerfile's steps and what pip installs. In place of Rust's image stands one that has the wheel, in
place of Python's one with this machine's interpreter and its libraries, without byte code, as the official image is.
"""

import os
import re
import shutil
import subprocess
from pathlib import Path

import wheel
from grpc._cython import cygrpc
from pydantic_core import _pydantic_core

from devherd import _native

ROOT = Path(__file__).parents[3]
TARGET = f"{os.uname().machine}-unknown-linux-gnu"
_CONTAINERFILE = ROOT / "deploy" / "Containerfile"
_APPLETS = (
    "cat",
    "chmod",
    "cp",
    "dd",
    "find",
    "ln",
    "ls",
    "mkdir",
    "mknod",
    "mv",
    "rm",
    "sh",
    "sleep",
    "stat",
    "tee",
    "true",
    "uname",
)
_BUILD = {
    "usr/bin/apt-get": "true",
    "usr/bin/rustup": "true",
    "usr/bin/python3": """
        for directory; do :; done   # the last argument
        case "$1" in
        rust/wheel.py) mkdir -p "$directory"; cp /made/*.whl "$directory" ;;
        *)
            mkdir -p "$directory/bin"
            echo true >"$directory/bin/pip"
            chmod +x "$directory"/bin/*
            ;;
        esac
    """,
}


class Images:
    """Archives of images in a directory, made by buildah with a store of its own, which nobody else sees."""

    def __init__(self, buildah: str, busybox: str, directory: Path) -> None:
        self.directory = directory
        store = ["--root", directory / "store", "--runroot", directory / "run", "--storage-driver", "vfs"]
        hidden = 'mount -t tmpfs none /var/lib && mount -t tmpfs none /run && exec "$@"'
        self._command = ["unshare", "--mount", "sh", "-c", hidden, "sh", buildah, *store]
        self._busybox = busybox
        self._policy = directory / "policy.json"
        self._policy.write_text('{"default": [{"type": "insecureAcceptAnything"}]}')

    def wheel(self) -> Path:
        """Devherd's wheel, as the Containerfile's first stage makes it."""
        place = self.directory / "wheels"
        assert wheel.main(["--release", "--locked", "--quiet", "--target", TARGET, "--out", str(place)]) == 0
        [made] = place.iterdir()
        return made

    def small(self) -> Path:
        """localhost/small:1: busybox, which sleeps; for users' pods, and the pause container."""
        context = self._context("small", {})
        (context / "Containerfile").write_text('FROM scratch\nCOPY tree /\nENTRYPOINT ["/bin/sleep", "1000000"]\n')
        return self._archive("localhost/small:1", context)

    def devherd(self, devherds_wheel: Path, python: Path, *tags: str) -> list[Path]:
        """localhost/devherd:TAG for each of the tags; its revision is the tag."""
        self._build(self._rust_base(devherds_wheel), "--tag", "localhost/rust")
        self._build(self._python_base(python), "--tag", "localhost/python")
        bases = ["--build-arg", "RUST_IMAGE=localhost/rust", "--build-arg", "PYTHON_IMAGE=localhost/python"]
        options = ["--layers", "--file", _CONTAINERFILE, *bases, "--build-arg", f"REVISION={tags[0]}"]
        first = f"localhost/devherd:{tags[0]}"
        return [self._archive(first, ROOT, *options), *(self._other_revision(first, tag) for tag in tags[1:])]

    def _other_revision(self, image: str, tag: str) -> Path:
        """A built image, as one of another revision."""
        context = self.directory / f"devherd-{tag}"
        context.mkdir()
        (context / "Containerfile").write_text(f"FROM {image}\nENV DEVHERD_REVISION={tag}\n")
        return self._archive(f"localhost/devherd:{tag}", context)

    def _archive(self, name: str, context: Path, *arguments: object) -> Path:
        self._build(context, "--tag", name, *arguments)
        archive = self.directory / (re.sub(r"\W", "-", name) + ".tar")
        self._buildah("push", "--signature-policy", self._policy, name, f"oci-archive:{archive}:{name}")
        return archive

    def _rust_base(self, devherds_wheel: Path) -> Path:
        context = self._context("rust", _BUILD)
        (context / "tree/made").mkdir()
        shutil.copy(devherds_wheel, context / "tree/made")
        (context / "Containerfile").write_text("FROM scratch\nCOPY tree /\n")
        return context

    def _python_base(self, python: Path) -> Path:
        """`python` is the prefix of an installed Python: PREFIX/bin/python3."""
        context = self._context("python", {"usr/bin/apt-get": "true"})
        tree = context / "tree"
        unwanted = shutil.ignore_patterns(
            "__pycache__", "test", "tests", "*.a", "include", "share", "config-*", "site-packages"
        )
        shutil.copytree(python, tree / "usr/local", symlinks=True, ignore=unwanted)
        pip = next(python.glob("lib/python3*/site-packages"))
        place = tree / "usr/local" / pip.relative_to(python)
        for package in pip.glob("pip*"):
            shutil.copytree(package, place / package.name, ignore=shutil.ignore_patterns("__pycache__"))
        for program in tree.glob("usr/local/bin/*"):
            if not program.is_symlink() and program.read_bytes()[:2] == b"#!":
                program.write_text(re.sub(r"\A#!.*", "#!/usr/local/bin/python3", program.read_text()))
        libraries = _libraries(python)
        for library in libraries:
            place = tree / library.lstrip("/")
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(library, place)
        # As in the official image: a later stage copies files, and no variables.
        places = {"/usr/local/lib", *(str(Path(library).parent) for library in libraries)}
        (tree / "etc/ld.so.conf").write_text("\n".join(sorted(places)) + "\n")
        subprocess.run(["ldconfig", "-r", tree], check=True)
        certificates = Path("/etc/ssl/certs/ca-certificates.crt")
        if certificates.exists():
            (tree / "etc/ssl/certs").mkdir(parents=True)
            shutil.copy(certificates, tree / "etc/ssl/certs")
        environment = {
            name: value for name, value in os.environ.items() if name.startswith("PIP_") and name != "PIP_FIND_LINKS"
        }
        (tree / "var/lib/dpkg").mkdir(parents=True)
        (tree / "var/lib/dpkg/status").touch()
        (context / "Containerfile").write_text(
            "FROM scratch\nCOPY tree /\nENV PATH=/usr/local/bin:/usr/bin:/bin\n"
            + "".join(f"ENV {name}={value}\n" for name, value in environment.items())
        )
        return context

    def _context(self, name: str, scripts: dict[str, str]) -> Path:
        context = self.directory / name
        programs = context / "tree/bin"
        programs.mkdir(parents=True)
        for path in ("tmp", "root", "etc"):
            (context / "tree" / path).mkdir()
        shutil.copy(self._busybox, programs / "busybox")
        for applet in _APPLETS:
            (programs / applet).symlink_to("busybox")
        for path, script in scripts.items():
            program = context / "tree" / path
            program.parent.mkdir(parents=True, exist_ok=True)
            program.write_text(f"#!/bin/sh\n{script}\n")
            program.chmod(0o755)
        return context

    def _build(self, context: Path, *arguments: object) -> None:
        self._buildah(
            "bud", "--isolation", "chroot", "--pull-never", "--signature-policy", self._policy, *arguments, context
        )

    def _buildah(self, *arguments: object) -> None:
        environment = os.environ | {"TMPDIR": str(self.directory), "HOME": str(self.directory)}
        command = [*map(str, self._command), *map(str, arguments)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"buildah {arguments[0]} failed:\n{(done.stdout + done.stderr)[-4000:]}")


def _libraries(python: Path) -> set[str]:
    """What the interpreter, its modules and compiled packages are linked with: libraries that every base image has."""
    modules = [
        module for module in python.glob("lib/python3*/lib-dynload/*.so") if not module.name.startswith("_tkinter")
    ]
    modules += [_native.__file__, cygrpc.__file__, _pydantic_core.__file__]
    said = subprocess.run(["ldd", python / "bin/python3", *modules], capture_output=True, text=True, check=True).stdout
    found = set(re.findall(r"(?:=> |^\s*)(/\S+) \(", said, re.MULTILINE))
    return {library for library in found if not Path(library).is_relative_to(python)}
