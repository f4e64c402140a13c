"""Runs devherd as the DaemonSet's container would be run: its volumes, environment and rights, without a cluster.

What the container runtime does and this does not: the seccomp filter, SELinux, and the limits of cgroups.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

# What the container has of its own; everything else at the top of the file system is the host's, read-only, in place of
# the image: the interpreter and the packages are somewhere there.
OWN = ("dev", "etc", "host", "proc", "run", "sys", "var")
DEVICES = ("null", "urandom")
LOOPBACK_UP = (
    "import fcntl, socket, struct; "
    "fcntl.ioctl(socket.socket(), 0x8914, struct.pack('16sh14x', b'lo', 0x41))"  # SIOCSIFFLAGS: IFF_UP | IFF_RUNNING
)


class Pod:
    """The one container of `pod_spec`, with `volumes` as the sources of its volumes by name; `end` ends it.

    `host_files` are put into /host, where no volume has them.
    """

    def __init__(self, pod_spec, volumes, directory, host_files=()):
        [container] = pod_spec["containers"]
        root = directory / "root"
        root.mkdir()
        script = directory / "start.sh"
        script.write_text(
            "\n".join(["set -e", *_file_system(root, container, volumes, host_files), _start(root, container)])
        )
        self._log = (directory / "log").open("w+")
        self._process = subprocess.Popen(
            ["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "sh", script], stderr=self._log
        )

    def runs(self):
        return self._process.poll() is None

    def log(self):
        return Path(self._log.name).read_text()

    def inside(self, *command):
        """Run a command in the pod's network, with the host's files."""
        return subprocess.run(
            ["nsenter", f"--target={self._process.pid}", "--net", *command],
            capture_output=True,
            text=True,
            check=False,
        )

    def status(self):
        """/proc/PID/status of the supervisor, by its field names."""
        lines = Path(f"/proc/{self._supervisor()}/status").read_text().splitlines()
        return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}

    def capabilities(self):
        """Effective capabilities of the supervisor's children that have any, by their names."""
        supervisor = self._supervisor()
        children = Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split()
        effective = {}
        for child in map(Path("/proc").joinpath, children):
            name = (child / "comm").read_text().strip()
            effective[name] = int((child / "status").read_text().partition("CapEff:")[2].split()[0], 16)
        return {name: mask for name, mask in effective.items() if mask}

    def writable_mounts(self):
        """Where the pod has file systems that it may write to; those below /proc and of the image apart."""
        lines = Path(f"/proc/{self._supervisor()}/mountinfo").read_text().splitlines()
        options = {fields[4]: fields[5].split(",") for fields in map(str.split, lines)}
        return {place for place, having in options.items() if "rw" in having and not place.startswith("/proc")}

    def end(self):
        """The exit code after SIGTERM."""
        if self.runs():
            os.kill(self._supervisor(), signal.SIGTERM)
        self._log.close()
        return self._process.wait(60)

    def _supervisor(self):
        pid = self._process.pid
        return int(Path(f"/proc/{pid}/task/{pid}/children").read_text())


def _file_system(root, container, volumes, host_files):
    yield "mount --make-rprivate /"
    yield f"mount -t tmpfs none {root}"
    for entry in Path("/").iterdir():
        if entry.is_symlink():
            yield f"cp --no-dereference {entry} {root}{entry}"
        elif entry.is_dir() and entry.name not in OWN:
            yield f"mkdir {root}{entry} && mount --rbind {entry} {root}{entry}"
            yield f"mount -o remount,ro,bind {root}{entry}"
    yield f"mkdir {' '.join(str(root / name) for name in OWN)}"
    yield f"mount -t proc proc {root}/proc"
    for device in DEVICES:
        yield f"touch {root}/dev/{device} && mount --bind /dev/{device} {root}/dev/{device}"
    for mount in container["volumeMounts"]:
        target = f"{root}{mount['mountPath']}"
        yield f"mkdir -p {target} && mount --rbind {volumes[mount['name']]} {target}"
        if mount.get("readOnly"):
            below = "--submounts" if mount.get("recursiveReadOnly") else ""
            listed = f"findmnt --list --noheadings --output TARGET {below} {target}"
            yield f"for each in $({listed}); do mount -o remount,ro,bind $each; done"
    for file in host_files:
        yield f"cp {file} {root}/host/"
    if container["securityContext"]["readOnlyRootFilesystem"]:
        yield f"mount -o remount,ro {root}"


def _start(root, container):
    security = container["securityContext"]
    capabilities = security["capabilities"]
    assert capabilities["drop"] == ["ALL"]
    kept = ",".join(["-all", *(f"+{name.lower()}" for name in capabilities.get("add", ()))])
    no_new_privileges = "--no-new-privs" if security.get("allowPrivilegeEscalation") is False else ""
    values = {variable["name"]: variable.get("value", "node-1") for variable in container["env"]}  # the rest are fields
    environment = " ".join(f"{name}='{value}'" for name, value in values.items())
    return (
        f'{sys.executable} -c "{LOOPBACK_UP}"\n'
        f"exec chroot {root} setpriv --reuid={security['runAsUser']} --regid={security['runAsGroup']} --clear-groups "
        f"--bounding-set={kept} --inh-caps={kept} {no_new_privileges} "
        f"env --ignore-environment PATH=/usr/bin:/bin {environment} "
        f"{sys.executable} -m devherd {' '.join(container['args'])}"
    )
