"""Whose a process is, by its /proc/<pid>/cgroup: <https://man7.org/linux/man-pages/man7/cgroups.7.html>. Pure.

The kubelet names the cgroup of a pod `pod<uid>`, and for systemd, whose names have `-` between levels, with `_` in the
uid (pkg/kubelet/cm: `GetPodContainerName`, `CgroupName.ToSystemd`). The runtime makes a cgroup below it whose name ends
in the container's id: `<id>`, `cri-containerd-<id>.scope`, `crio-<id>.scope`, `docker-<id>.scope`, or, where it takes
a name for systemd as a path, `<slice>:cri-containerd:<id>`. The uid of a static pod has no `-`.
"""

import re
from dataclasses import dataclass

_POD = re.compile(
    r"pod(?P<uid>[0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32})(?:\.slice)?(?:[/:]|$)", re.MULTILINE
)
_CONTAINER = re.compile(r"[/:-](?P<id>[0-9a-f]{64})(?:\.scope)?(?:/|$)", re.MULTILINE)


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """The container of a process; all empty for one that is in none."""

    pod_uid: str = ""
    """As the API has it, with `-`; empty for a process of no pod."""
    container_id: str = ""
    """As the runtime has it; empty if its cgroup does not name it."""


def place_of(text: str) -> Place:
    """The container that the content of a cgroup file names."""
    pod, container = _POD.search(text), _CONTAINER.search(text)
    return Place(pod["uid"].replace("_", "-") if pod else "", container["id"] if container else "")
