"""A reader's terminal: one bash that is given commands and says what they print, with paths of its own."""

import contextlib
import doctest
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import scratch
from shown import ROOT

from devherd_sim.testbed import free_port

END = "--- end of the command:"
PATIENCE_S = 30
LOOKS = re.compile(r"devherd (status|scan|explain|events|sim kubelet (status|devices))\b|curl\b")
"""What only looks may be typed again until it prints what the page says: a reader does not type within milliseconds."""

JUDGES = ("devherd doctor", "devherd explain")
"""They end with 1 where something is wrong: a machine without a kubelet's container runtime, a GPU with a fault."""

STANDS_FOR = {"GPU-1": "GPU-1af82b6b-b164-5efa-a55a-f0e76b9de459"}
"""Short names that pages use for what a reader has: the first GPU of the node `nvidia-8`."""


class Terminal:
    """Use it as a context. Paths that pages name are below a directory of its own, which has the checkout's files."""

    def __enter__(self):
        """Start bash."""
        self.directory = scratch.directory()
        self._paths = {
            "/tmp/": f"{self.directory}/tmp/",
            "/run/devherd": f"{self.directory}/run",
            "/etc/devherd": f"{self.directory}/etc",
            "127.0.0.1:9478": f"127.0.0.1:{free_port()}",
        }
        for name in ("tmp", "etc", "checkout", "run-http"):
            (self.directory / name).mkdir()
        for entry in ("README.md", "deploy", "docs"):
            (self.directory / "checkout" / entry).symlink_to(ROOT / entry)
        environment = {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "HOME": str(self.directory),
            "COLUMNS": "160",
            "LC_ALL": "C.UTF-8",
            "DEVHERD_RUN_DIR": f"{self.directory}/run",
            "DEVHERD_KUBELET_DIR": f"{self.directory}/kubelet",
            "DEVHERD_LISTEN": self._paths["127.0.0.1:9478"],
        }
        self._bash = subprocess.Popen(
            ["bash", "--noprofile", "--norc"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=self.directory / "checkout",
            env=environment,
            start_new_session=True,
        )
        return self

    def __exit__(self, *_):
        """End whatever the page started, also where a command hangs; without a trace."""
        with contextlib.suppress(subprocess.TimeoutExpired, BrokenPipeError):
            self._bash.communicate("kill $(jobs -p) 2> /dev/null; wait\n", timeout=PATIENCE_S)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._bash.pid, signal.SIGKILL)
        self._bash.wait()
        for pipe in (self._bash.stdin, self._bash.stdout):
            with contextlib.suppress(BrokenPipeError):
                pipe.close()
        shutil.rmtree(self.directory)

    def type(self, text):
        """Run a command; its exit status and output, with the paths that the page has."""
        for word, meant in self._paths.items():
            text = re.sub(rf"(?<!\w){re.escape(word)}", lambda _, meant=meant: meant, text)
        for word, meant in STANDS_FOR.items():
            text = re.sub(rf"\b{word}\b", meant, text)
        self._bash.stdin.write(f"{{ {text}\n}} < /dev/null; code=$?; echo; echo '{END}' $code\n")
        self._bash.stdin.flush()
        printed = []
        for line in self._bash.stdout:
            if line.startswith(END):
                output = "".join(printed).removesuffix("\n")
                for word, meant in self._paths.items():
                    output = output.replace(meant, word)
                return int(line.removeprefix(END)), output
            printed.append(line)
        raise AssertionError(f"the shell ended: {text}\n{''.join(printed)}")

    def follow(self, command):
        """Type a command of a page: it succeeds, and prints what the page says."""
        until = time.monotonic() + PATIENCE_S
        while True:
            code, output = self.type(command.text)
            as_shown = not command.printed or is_as_shown(command.printed, output)
            if as_shown or not LOOKS.search(command.text) or time.monotonic() > until:
                break
            time.sleep(0.2)
        said = f"{command.block.name}: {command.text}\n{output}"
        assert code == 0 or (code == 1 and command.text.startswith(JUDGES)), said
        assert as_shown, f"{said}\nthe page says:\n{command.printed}"
        if "devherd run" in command.text:
            self.until_registered()

    def until_registered(self):
        """Wait until the kubelet has every resource of the instance that was started, and its pages are served."""
        until = time.monotonic() + PATIENCE_S
        while True:
            code, output = self.type("devherd status --output json 2> /dev/null")
            status = json.loads(output) if code == 0 else {"resources": [], "http": []}
            is_served = any(address["is_served"] for address in status["http"])  # the exporter starts a little later
            if status["resources"] and is_served and all(each["registered"] for each in status["resources"]):
                return
            assert time.monotonic() < until, self.type("devherd status; cat /tmp/*.log")[1]
            time.sleep(0.1)


def is_as_shown(shown, printed):
    """Whether a page shows what is printed, spaces, times and process numbers aside; `...` stands for anything."""
    rules = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    return doctest.OutputChecker().check_output(_timeless(shown), _timeless(printed), rules)


def _timeless(text):
    for changing in (r"\d+-\d\d-\d\dT[\d:.]+Z", r"\b\d+(\.\d+)? (µs|ms|s)\b", r"(?<=RUNNING )\d+"):
        text = re.sub(changing, "TIME", text)
    return "\n".join(line.rstrip() for line in text.strip().splitlines()) + "\n"
