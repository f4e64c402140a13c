"""The image: every step of the Containerfile is carried out by buildah.

What this shows: the file is valid, everything it copies is in the checkout and let through by .dockerignore, its stages
fit together, and the image starts `devherd run`. What it does not show: that the two base images from Docker Hub, apt
and PyPI give what is asked of them. In their place stands busybox with programs that write down what they were told.
"""

import os
import shutil
import stat
import subprocess
import tomllib
from pathlib import Path

import pytest
from build import MATERIALS, Image, commands, report
from oci_archive import OciArchive
from unshared import skip_without_namespaces, unshared

ROOT = Path(__file__).parents[2]
CONTAINERFILE = ROOT / "deploy" / "Containerfile"

WHEEL = "devherd-1-any.whl"
STAND_INS = {
    "usr/bin/apt-get": """
        echo "apt-get $*" >>/calls/log
        for package; do
            case "$package" in
            libdrm-common) mkdir -p /usr/share/libdrm; echo "$package" > /usr/share/libdrm/amdgpu.ids ;;
            pci.ids) mkdir -p /usr/share/misc; echo "$package" > /usr/share/misc/pci.ids ;;
            esac
            mkdir -p "/usr/share/doc/$package"; echo licence > "/usr/share/doc/$package/copyright"
        done
    """,
    "usr/bin/rustup": 'echo "rustup $*" >>/calls/log',
    "usr/bin/pip": """
        echo "pip $*" >>/calls/log
        for wheel; do :; done   # the last argument
        [ -s "$wheel" ] && echo "installed ${wheel##*/}" > /opt/devherd/bin/devherd
    """,
    "usr/bin/python3": f"""
        echo "python $*" >>/calls/log
        for last; do :; done   # the last argument
        case "$*" in
        -c*) echo /usr/local ;;
        *" venv "*)
            mkdir -p "$last/bin"
            echo 'echo "pip $*" >>/calls/log' > "$last/bin/pip"
            echo 'echo "cyclonedx-py $*" >>/calls/log; echo "{{}}" > /tmp/packages.json' > "$last/bin/cyclonedx-py"
            chmod +x "$last"/bin/*
            ;;
        rust/wheel.py*)
            echo "revision $DEVHERD_REVISION, time $SOURCE_DATE_EPOCH" >>/calls/log
            mkdir "$last"; find . -type f | tee "$last/{WHEEL}" >>/calls/log
            ;;
        */materials.py*) cat "$last" ;;
        esac
    """,
    "usr/bin/dpkg-query": "false",
}
APPLETS = ("sh", "cat", "chmod", "find", "mkdir", "rm", "tee", "uname")
IMAGE = Image("localhost/devherd", version="1.2.3", revision="abcdef", epoch=1_700_000_000, platform="linux/amd64")


class Builder:
    """buildah with a store of its own, and nothing of it left behind."""

    def __init__(self, buildah, directory):
        self._directory = directory
        store = ["--root", directory / "store", "--runroot", directory / "run", "--storage-driver", "vfs"]
        self._command = [*unshared("/var/lib", "/run"), buildah, *store]
        self.policy = directory / "policy.json"
        self.policy.write_text('{"default": [{"type": "insecureAcceptAnything"}]}')

    def __call__(self, *arguments):
        environment = {**os.environ, "TMPDIR": str(self._directory), "HOME": str(self._directory)}
        done = subprocess.run(
            [*self._command, *arguments], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    def build(self, context, *arguments):
        return self(
            "bud", "--isolation", "chroot", "--pull-never", "--signature-policy", self.policy,
            *arguments, context,
        )  # fmt: skip


@pytest.fixture(scope="module")
def builder(tool, tmp_path_factory):
    """A builder that has the two base images."""
    skip_without_namespaces()
    directory = tmp_path_factory.mktemp("image")
    build = Builder(tool("buildah"), directory)
    build.build(make_base(directory / "base", tool("busybox")), "--tag", "localhost/base")
    return build


@pytest.fixture(scope="module")
def built(builder, tmp_path_factory):
    """The image as `make image` has it built, and how the stand-ins were called."""
    return build_image(builder, tmp_path_factory.mktemp("built"))


def build_image(builder, directory):
    """The image of the checkout by the commands of deploy/image/build.py, and how the stand-ins were called.

    They write it to a file: of what a step prints at its very end, buildah may lose a line under load.
    """
    bases = ["--build-arg", "RUST_IMAGE=localhost/base", "--build-arg", "PYTHON_IMAGE=localhost/base"]
    archive, calls = directory / "image.oci.tar", directory / "calls"
    calls.mkdir()
    build, push = commands("buildah", IMAGE, archive, [*bases, "--no-cache", "--volume", f"{calls}:/calls"])
    assert (build[:2], build[-1], push[:2]) == (["buildah", "build"], ".", ["buildah", "push"])
    builder.build(ROOT, *build[2:-1])
    builder("push", "--signature-policy", builder.policy, *push[2:])
    return OciArchive(archive), (calls / "log").read_text()


def make_base(directory, busybox):
    """A context whose image has a shell, and the stand-ins where the real images have the real programs."""
    for name, script in {"bin/.keep": "", **STAND_INS}.items():
        path = directory / "tree" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
    shutil.copy(busybox, directory / "tree" / "bin" / "busybox")
    for applet in APPLETS:
        (directory / "tree" / "bin" / applet).symlink_to("busybox")
    (directory / "tree" / "usr" / "bin" / "python").symlink_to("python3")
    status = directory / "tree" / "var" / "lib" / "dpkg" / "status"
    status.parent.mkdir(parents=True)
    status.write_text("Package: base-files\n")
    for name in ("tmp", "calls"):
        (directory / "tree" / name).mkdir()
    (directory / "Containerfile").write_text("FROM scratch\nCOPY tree /\n")
    return directory


def test_the_image_runs_devherd_run(built):
    """A container started without arguments is the supervisor; with arguments, any other command of devherd."""
    config = built[0].config["config"]
    assert (config["Entrypoint"], config["Cmd"]) == (["devherd"], ["run"])
    path = next(entry for entry in config["Env"] if entry.startswith("PATH="))
    assert path.startswith("PATH=/opt/devherd/bin:")


def test_the_image_says_what_it_is(built):
    """Its labels are OCI's; the revision is also the one of /metrics, and that of the wheel."""
    image, said = built
    labels = image.config["config"]["Labels"].items()
    assert {
        name.removeprefix("org.opencontainers.image."): value for name, value in labels if "opencontainers" in name
    } == {
        "title": "devherd",
        "description": "One supervisor for every FPGA, GPU and other device on a Kubernetes node",
        "licenses": "Apache-2.0",
        "source": "https://devherd.example/",
        "version": "1.2.3",
        "revision": "abcdef",
        "created": "2023-11-14T22:13:20+00:00",
        "base.name": "localhost/base",
    }
    assert "DEVHERD_REVISION=abcdef" in image.config["config"]["Env"]
    assert "revision abcdef, time 1700000000" in said.splitlines()


def test_each_layer_is_one_copy_and_has_what_its_step_names(built):
    """The base without what was removed from it, devherd with what it needs, and the bill of both."""
    image, _ = built
    print(*report(IMAGE, image.layers()), sep="\n")
    assert [layer.made_by.split(" in ")[-1].strip() for layer in image.layers()] == [
        "/",
        "/opt/devherd",
        "/usr/share/devherd/materials",
    ]
    assert image.file("opt/devherd/bin/devherd") == f"installed {WHEEL}\n".encode()
    for program in ("lsmod", "nvidia-device-plugin"):  # what NVIDIA's operator starts
        assert image.file(f"opt/devherd/bin/{program}") == (CONTAINERFILE.parent / "image" / program).read_bytes()
    assert image.file(MATERIALS) == b"Package: base-files\n"
    with pytest.raises(KeyError):
        image.file("tmp/slim.sh")


@pytest.mark.parametrize(
    ("package", "path", "source"),
    [
        ("libdrm-common", "usr/share/libdrm/amdgpu.ids", "amd/product_names.rs"),
        ("pci.ids", "usr/share/misc/pci.ids", "nvidia/passthrough.rs"),
    ],
)
def test_the_image_has_the_names_of_devices_for_hosts_without_them(built, package, path, source):
    """Where they are looked for after the host, with their licence. Whose a file is says `dpkg --contents`."""
    image, _ = built
    assert image.file(path) == f"{package}\n".encode()
    assert image.file(f"usr/share/doc/{package}/copyright") == b"licence\n"
    assert f'"/{path}"' in (ROOT / "rust/src/vendors" / source).read_text("utf-8")


def test_two_builds_of_one_commit_are_the_same_image(built, builder, tmp_path):
    """Nothing of it knows when it was built, so whoever builds it can compare it with what is published."""
    again, _ = build_image(builder, tmp_path)
    assert again.layers() == built[0].layers()
    assert again.config == built[0].config


def test_byte_code_is_valid_whatever_time_its_source_has(built):
    """All times of an image are set to one moment: usual byte code would be compiled again at every start."""
    compiled = [line for line in built[1].splitlines() if line.startswith("python -m compileall")]
    assert len(compiled) == 2
    assert all("--invalidation-mode unchecked-hash" in line for line in compiled)


def test_the_build_sees_the_sources_and_nothing_else(built):
    """Nothing else that lies in the checkout goes into a build: no build output, no history, no secret."""
    _, said = built
    seen = {line for line in said.splitlines() if line.startswith("./")}
    assert {"./pyproject.toml", "./Cargo.lock", "./rust/src/lib.rs", "./python/devherd/py.typed"} < seen
    let_through = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert {Path(line).parts[0] for line in seen} <= let_through
    assert not [line for line in seen if line.endswith((".so", ".pyc"))]


def test_what_is_installed_is_pinned(built):
    """All pip runs take the versions of constraints.txt, and cargo those of Cargo.lock."""
    _, said = built
    pip = [line for line in said.splitlines() if line.startswith("pip ")]
    assert len(pip) == 3
    assert all("constraints.txt" in line for line in pip)
    assert any(line.startswith("python rust/wheel.py --release --locked ") for line in said.splitlines())


@pytest.mark.parametrize(("platform", "target"), [("linux/amd64", "x86_64"), ("linux/arm64", "aarch64")])
def test_the_wheel_is_compiled_for_the_platform_of_the_image(platform, target):
    """By the machine that builds, which may be another one."""
    steps = CONTAINERFILE.read_text()
    assert "FROM --platform=${BUILDPLATFORM} ${RUST_IMAGE} AS wheel" in steps
    assert f"{platform.removeprefix('linux/')}|{target}) cpu={target} ;;" in steps


def test_every_path_that_the_build_files_name_goes_into_the_build():
    """Cargo and maturin refuse a manifest that names a file which is not there."""
    let_through = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    cargo = tomllib.loads((ROOT / "Cargo.toml").read_text())
    targets = [cargo["lib"], *cargo.get("bench", []), *cargo.get("test", []), *cargo.get("bin", [])]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    named = [target["path"] for target in targets if "path" in target]
    named += [
        project["project"]["readme"],
        # Those with a star are made by a step of the build.
        *(each for each in project["project"]["license-files"] if "*" not in each),
        project["tool"]["maturin"]["python-source"],
    ]
    assert [path for path in named if Path(path).parts[0] not in let_through] == []
