"""What can be found amiss with a plugin, by a word of its own, with its cure."""

from dataclasses import dataclass
from typing import Literal

Check = Literal[
    "register-refused",
    "endpoint-with-a-slash",
    "duplicate-id",
    "empty-id",
    "unknown-health",
    "no-devices",
    "bad-numa-node",
    "late-list",
    "repeated-list",
    "slow-answer",
    "allocate-fails",
    "empty-answer",
    "wrong-number-of-answers",
    "bad-device",
    "bad-mount",
    "bad-cdi-name",
    "unknown-id-accepted",
    "bad-preference",
    "pre-start-fails",
    "not-registered-again",
    "gone",
]

CURES: dict[Check, str] = {
    "register-refused": "correct the request to Register: version v1beta1, a resource name like example.com/gpu, a"
    " socket that answers before Register is called",
    "endpoint-with-a-slash": "register with the name of the socket in device-plugins, not with its path",
    "duplicate-id": "list each device once: the kubelet counts an id that is there twice as one",
    "empty-id": "give each device an id",
    "unknown-health": "write `Healthy` or `Unhealthy`: the kubelet takes every other word for Unhealthy",
    "no-devices": "list the devices, or do not register: the node reports a capacity of 0",
    "bad-numa-node": "list NUMA nodes that the machine has, or leave topology out",
    "late-list": "send the list as soon as ListAndWatch is called: until then no pod gets a device",
    "repeated-list": "send a list when it has changed, and not else: the kubelet writes its checkpoint for each",
    "slow-answer": "answer from memory: the kubelet has no deadline, and admits one pod after the other",
    "allocate-fails": "answer Allocate for each Healthy device: a pod that was given it is rejected for good",
    "empty-answer": "answer with nodes, mounts, variables, annotations or CDI devices: the container gets nothing else",
    "wrong-number-of-answers": "answer each container_request with one container_response",
    "bad-device": "use absolute paths, and permissions of `r`, `w` and `m`",
    "bad-mount": "use absolute paths: the runtime refuses the container otherwise",
    "bad-cdi-name": "use qualified names, like vendor.com/class=name",
    "unknown-id-accepted": "refuse ids that are not in the list, with INVALID_ARGUMENT",
    "bad-preference": "prefer as many devices as are asked for, available ones, with those that must be included",
    "pre-start-fails": "answer PreStartContainer within 30 s, or do not ask for it in the options",
    "not-registered-again": "watch device-plugins/kubelet.sock, and serve and register again when it is created again:"
    " the kubelet has removed the plugin's socket",
    "gone": "keep ListAndWatch open: the kubelet sets the resource to 0 when it ends",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is amiss."""

    resource: str
    check: Check
    problem: str

    @property
    def cure(self) -> str:
        """What to do about it."""
        return CURES[self.check]

    def as_json(self) -> dict[str, str]:
        """For programs."""
        return {"resource": self.resource, "check": self.check, "problem": self.problem, "cure": self.cure}
