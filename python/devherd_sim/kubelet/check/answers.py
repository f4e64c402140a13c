"""Answers to Allocate and GetPreferredAllocation: what is wrong with one. Pure."""

import re
from collections.abc import Collection, Iterator

from devherd.proto import deviceplugin_v1beta1_pb2 as api
from devherd_sim.kubelet.check.lists import Problem

_CDI_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*/[A-Za-z][A-Za-z0-9_.-]*=[A-Za-z0-9][A-Za-z0-9_.:-]*")
"""<https://github.com/cncf-tags/container-device-interface/blob/main/SPEC.md>, qualified names."""


def of_allocate(answer: api.AllocateResponse) -> Iterator[Problem]:
    """What is wrong with the answer for one container."""
    if len(answer.container_responses) != 1:
        yield "wrong-number-of-answers", f"{len(answer.container_responses)} answers to Allocate for one container"
        return
    [given] = answer.container_responses
    if given == api.ContainerAllocateResponse():
        yield "empty-answer", "Allocate was answered with nothing"
    for device in given.devices:
        paths = f"{device.host_path!r} as {device.container_path!r}"
        if not (device.host_path.startswith("/") and device.container_path.startswith("/")):
            yield "bad-device", f"device {paths} is not an absolute path"
        if not device.permissions or set(device.permissions) - set("rwm"):
            yield "bad-device", f"device {paths} has the permissions `{device.permissions}`"
    for mount in given.mounts:
        if not (mount.host_path.startswith("/") and mount.container_path.startswith("/")):
            yield "bad-mount", f"mount {mount.host_path!r} at {mount.container_path!r} is not an absolute path"
    for named in given.cdi_devices:
        if not _CDI_NAME.fullmatch(named.name):
            yield "bad-cdi-name", f"CDI device `{named.name}`"


def of_preferred(
    answer: api.PreferredAllocationResponse, available: Collection[str], must_include: Collection[str], size: int
) -> Iterator[Problem]:
    """What is wrong with a preference for one container."""
    if len(answer.container_responses) != 1:
        said = f"{len(answer.container_responses)} answers to GetPreferredAllocation for one container"
        yield "wrong-number-of-answers", said
        return
    chosen = list(answer.container_responses[0].deviceIDs)
    if len(chosen) != size or len(set(chosen)) != size:
        yield "bad-preference", f"{len(set(chosen))} devices preferred, where {size} are asked for"
    if foreign := sorted(set(chosen) - set(available)):
        yield "bad-preference", f"`{foreign[0]}` preferred, which is not available"
    if missing := sorted(set(must_include) - set(chosen)):
        yield "bad-preference", f"`{missing[0]}` not preferred, which must be included"
