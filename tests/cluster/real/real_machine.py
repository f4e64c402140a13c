"""A private machine in which containers can run.

Its cgroups are its own and can be written; simulated hardware is where the real would be: devherd's manifests need no
change. A device without a driver answers ENXIO where the device cgroup lets a process through, EPERM where not: that
shows who may open what.
"""

import os
import uuid
from pathlib import Path

from private_machine import PrivateMachine

from devherd_sim.node.presets import preset
from devherd_sim.node.simulated_node import SimulatedNode

_NAMESPACES = ("--mount", "--net", "--pid", "--uts", "--ipc", "--cgroup")

_CGROUPS = Path("/sys/fs/cgroup")

# $0: the directory of the machine; $1: the kernel's settings that are covered; $2: the name of the host.
# Overlays cannot lie on overlays: what containerd and the kubelet keep is bound from the directory.
_FIRST_PROCESS = """
set -e
read -r pid rest </proc/self/stat
hierarchies=$(sed 's/^[0-9]*:\\([^:]*\\):.*/\\1/' /proc/self/cgroup)
mount -t proc proc /proc

mount -t sysfs sysfs "$0/lower-sys"
mount -t overlay -o "lowerdir=$0/lower-sys,upperdir=$0/node/sys,workdir=$0/work-sys" overlay /sys
mount -t tmpfs -o mode=755 cgroups /sys/fs/cgroup
for hierarchy in $hierarchies; do
    name=${hierarchy#name=}
    mkdir "/sys/fs/cgroup/$name"
    mount -t cgroup -o "$hierarchy" cgroup "/sys/fs/cgroup/$name"
done

mkdir "$0/real-dev"
mount --rbind /dev "$0/real-dev"
mount -t tmpfs -o mode=755 dev /dev
for name in null zero full random urandom tty fuse kvm net; do
    [ ! -e "$0/real-dev/$name" ] || cp -a "$0/real-dev/$name" /dev/
done
ln -s /proc/self/fd /dev/fd
mkdir /dev/pts /dev/shm /dev/mqueue
mount -t devpts -o newinstance,ptmxmode=0666 devpts /dev/pts
ln -s pts/ptmx /dev/ptmx
mount -t tmpfs shm /dev/shm
mount -t mqueue mqueue /dev/mqueue
cp -a "$0/node/dev/." /dev/
umount -l "$0/real-dev"
[ ! -d "$0/node/proc/driver" ] || mount --bind "$0/node/proc/driver" /proc/driver
[ ! -d "$0/node/usr" ] || mount -t overlay -o "lowerdir=$0/node/usr:/usr" overlay /usr

for place in etc var; do
    mount -t overlay -o "lowerdir=/$place,upperdir=$0/$place,workdir=$0/work-$place" overlay "/$place"
done
mkdir -p /var/lib/kubelet /var/lib/containerd /etc/cni/net.d
mount --bind "$0/kubelet" /var/lib/kubelet
mount --bind "$0/containerd" /var/lib/containerd
mount --bind "$0/run" /run
mkdir -p /run/lock
rm -rf /var/run && ln -s /run /var/run
mount --bind "$0/log" /var/log
mount --bind "$0/hosts" /etc/hosts
for knob in $1; do [ ! -e "/proc/sys/$knob" ] || mount --bind "$0/$knob" "/proc/sys/$knob"; done
mount --make-rshared /
hostname "$2"
echo "$pid"
"""

_WAIT = """
cat >/dev/null
true
"""

# What systemd raises of the kernel's limits would be the whole machine's.
_SYSTEMD = """
mount -o bind,ro /proc/sys/fs /proc/sys/fs
exec env -i container=other PATH="$PATH" SYSTEMD_UNIT_PATH="/run/systemd/transient:$0/units" /usr/lib/systemd/systemd \
    --system --unit=nothing.target --log-target=null --show-status=no systemd.legacy_systemd_cgroup_controller=1
"""

# It ignores what would end it, and no process of its own may kill it.
_UNTIL_STDIN_ENDS = """
"$@" &
cat >/dev/null
kill -KILL $(cat "/proc/$!/task/$!/children")
wait
"""

# A process that enters namespaces stays in the cgroups that it was in.
_JOIN = 'for group in /sys/fs/cgroup/*/cgroup.procs; do echo $$ >"$group"; done; exec "$@"'


class RealMachine(PrivateMachine):
    """A private machine whose hardware is a simulated node's.

    In the directory, besides what a private machine has there: `node`, the tree; `containerd`, its /var/lib/containerd.
    With `systemd` its first process is systemd, which has no units but one that does nothing: for cgroups.
    Raises OSError where namespaces or cgroups of version 1 are not to be had.
    """

    def __init__(self, directory: Path, hardware: str, *, systemd: bool = False) -> None:
        self._first_process = _FIRST_PROCESS + (_SYSTEMD if systemd else _WAIT)
        self._systemd = systemd
        _put_unit(directory / "units")
        node = SimulatedNode.create(directory / "node", preset(hardware))
        _put_in_place_of_nvidia_ctk(node.root)
        for name in ("lower-sys", "work-sys", "etc", "work-etc", "var", "work-var", "containerd"):
            (directory / name).mkdir()
        self._groups = _groups(f"devherd-test-{uuid.uuid4().hex[:8]}")
        super().__init__(directory)

    def close(self) -> None:
        """End all that runs in it, and remove its cgroups."""
        super().close()
        for group in self._groups:
            for below, _, _ in os.walk(group, topdown=False):
                Path(below).rmdir()

    def _command(self, first_process: list[object]) -> list[object]:
        join = "".join(f"echo $$ >{group}/cgroup.procs; " for group in self._groups)
        return [
            "sh",
            "-ec",
            join + (_UNTIL_STDIN_ENDS if self._systemd else 'exec "$@"'),
            "sh",
            "unshare",
            *_NAMESPACES,
            "--fork",
            "--kill-child",
            *first_process,
        ]

    def _enter(self) -> list[str]:
        return ["nsenter", f"--target={self._first}", *_NAMESPACES, "sh", "-ec", _JOIN, "sh"]


def _put_unit(units: Path) -> None:
    units.mkdir()
    (units / "nothing.target").write_text("[Unit]\nDefaultDependencies=no\n")


def _put_in_place_of_nvidia_ctk(root: Path) -> None:
    """What the hooks of CDI specs call on a real node notes its arguments here."""
    program = root / "usr/bin/nvidia-ctk"
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text('#!/bin/sh\necho "$@" >>/var/log/nvidia-ctk\n')
    program.chmod(0o755)


def _groups(name: str) -> list[Path]:
    """A new cgroup below that of this process in each hierarchy of version 1."""
    groups = []
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, hierarchy, path = line.split(":", 2)
        if not hierarchy:  # version 2: without controllers beside version 1
            continue
        parent = _CGROUPS / hierarchy.removeprefix("name=") / path.lstrip("/")
        group = parent / name
        group.mkdir()
        for file in ("cpuset.cpus", "cpuset.mems"):
            if (parent / file).exists():
                (group / file).write_text((parent / file).read_text())
        groups.append(group)
    if not groups:
        raise FileNotFoundError("this machine has no cgroups of version 1")
    return groups
