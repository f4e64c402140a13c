"""What to do where the kubelet is not reached, by the error: what is absent, refused or too long looks alike."""

import errno
import os

from devherd.process import MORE_PROCESS_IDS, is_in_pod
from devherd.settings import Settings

AWAY = (errno.ENOENT, errno.ECONNREFUSED, errno.ENOTDIR)
"""Errors of a connection to the socket of a kubelet that does not run, or not here."""
WITHOUT_THREADS = "ABORTED"
"""The status code of a call that failed in this process: the kubelet has no such answer."""
_SHORTER = "name a shorter directory, such as a link to it: a socket's path has 107 bytes at most"
_ROOM = "make room on its file system, blocks and inodes"


def _denied() -> str:
    """Owners and modes refuse nothing to root."""
    if os.geteuid() != 0:
        return "run as root"
    if is_in_pod():
        return (
            "a security module refuses it: `ausearch -m avc -ts recent` on the host; set securityContext to what its"
            " policy permits, such as seLinuxOptions.type, or allow it there"
        )
    return "a security module refuses it: `ausearch -m avc -ts recent`, or `dmesg` for AppArmor; allow it there"


_BY_NUMBER = {
    errno.ENAMETOOLONG: _SHORTER,
    errno.ENOSPC: _ROOM,
    errno.EDQUOT: _ROOM,
    errno.EMFILE: "raise the limit of open files (LimitNOFILE of the unit)",
    errno.ENFILE: "raise fs.file-max",
}


def _of(error: OSError, otherwise: str) -> str:
    if isinstance(error, PermissionError):
        return _denied()
    return _BY_NUMBER.get(error.errno or 0, otherwise)


def of_directory(error: OSError) -> str:
    """Where no socket can be made in the directory for sockets."""
    if error.errno == errno.EROFS:
        writable = "`ReadWritePaths=-` and this directory in `systemctl edit devherd`"
        return "mount it writable in the pod" if is_in_pod() else f"make it writable: {writable}"
    if is_in_pod():
        return _of(error, "start the kubelet, which makes it; if it runs, mount its directory of this name in the pod")
    return _of(error, "start the kubelet, which makes it, or name its directory with --kubelet-dir")


def of_registration(error: OSError) -> str:
    """Where the kubelet's socket takes no registration."""
    return _of(error, "start the kubelet (`systemctl status kubelet`), or name its directory with --kubelet-dir")


def of_pod_resources(error: OSError, settings: Settings) -> str:
    """Where PodResources' socket takes no call: it moves with the kubelet's `--root-dir`, that of registrations not."""
    if error.errno == errno.ECONNREFUSED:
        return "start the kubelet: nobody listens at the socket"
    if is_in_pod():
        return _of(
            error,
            "give the kubelet's --root-dir as the chart's `kubeletDir`, or in the kustomization's hostPath of"
            f" {settings.pod_resources_socket.parent}: the pod mounts it from there",
        )
    return _of(error, "name the kubelet's --root-dir with --kubelet-root-dir (`ps -C kubelet -o args=`)")


def of_answer(code: str) -> str:
    """Where PodResources answers with an error, by the name of gRPC's status code."""
    return _BY_CODE.get(code, "look into the kubelet's log (`journalctl -u kubelet`)")


_BY_CODE = {
    # pkg/kubelet/apis/podresources: DefaultQPS, DefaultBurstTokens, ErrorLimitExceeded
    "RESOURCE_EXHAUSTED": "look for another program that asks it all the time: the kubelet answers 100 questions a"
    " second, of all programs together",
    "DEADLINE_EXCEEDED": "the kubelet hangs or is overloaded: look into its log (`journalctl -u kubelet`)",
    "UNIMPLEMENTED": "use Kubernetes 1.20 or newer, which has version v1",
    WITHOUT_THREADS: MORE_PROCESS_IDS,
    "PERMISSION_DENIED": "let the kubelet's policy permit it",
}
