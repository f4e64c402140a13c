"""What the tests of this folder promise: the machine is not touched, and nothing is left on it."""

import os
import select
import subprocess
import sys
from pathlib import Path

OWNER = """
import sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from private_machine import PrivateMachine
machine = PrivateMachine(Path(sys.argv[2]))
inside = machine.start("sh", "-c", "touch /var/lib/kubelet/here; exec sleep 1000")
while not (Path(sys.argv[2]) / "kubelet/here").exists():
    time.sleep(0.01)
print(inside.pid, flush=True)
time.sleep(1000)
"""


def test_what_is_written_inside_is_in_the_directory_and_nowhere_else(private_machine):
    """Mounts, host name and network are its own."""
    script = "touch /var/lib/kubelet/a /run/b /var/log/c /var/lib/devherd/d; hostname; wc -l < /proc/net/route"
    inside = private_machine.start("sh", "-c", script, stdout=subprocess.PIPE, text=True)
    assert inside.popen.communicate()[0].split() == ["node-1", "1"]
    for path in ("kubelet/a", "run/b", "log/c", "state/d"):
        assert (private_machine.directory / path).exists()
    assert not any(Path(path).exists() for path in ("/var/lib/kubelet/a", "/run/b", "/var/log/c", "/var/lib/devherd/d"))
    assert str(private_machine.directory) not in Path("/proc/self/mounts").read_text()


def test_nothing_in_it_outlives_the_process_that_made_it(tmp_path, private_machine):
    """However that ends."""
    command = [sys.executable, "-c", OWNER, Path(__file__).parent, tmp_path]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as owner:
        inside = os.pidfd_open(int(owner.stdout.readline()))
        owner.kill()
    ended, _, _ = select.select([inside], [], [], 30)
    os.close(inside)
    assert ended
