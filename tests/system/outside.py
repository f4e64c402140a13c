"""The herd from outside: supervisorctl, HTTP and commands, as an operator has them."""

import asyncio
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

from devherd_sim.testbed import Testbed

SUPERVISORCTL = Path(sys.executable).with_name("supervisorctl")


async def supervisorctl(testbed: Testbed, *words: str) -> str:
    """What the real supervisorctl prints for the instance, while the kubelet goes on in this loop."""
    command = [SUPERVISORCTL, "-c", testbed.settings.supervisord_conf, *words]
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=30, check=False)
    return done.stdout + done.stderr


async def get(testbed: Testbed, path: str) -> tuple[int, str]:
    """Status and body of a page of the exporter, 0 when nobody listens; the kubelet goes on meanwhile."""
    return await asyncio.to_thread(_get, f"http://{testbed.settings.listen}{path}")


def _get(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except OSError:
        return 0, ""


def devherd(*words: str) -> subprocess.CompletedProcess[str]:
    """A command, run to its end."""
    return subprocess.run(
        [sys.executable, "-m", "devherd", *words], capture_output=True, text=True, timeout=60, check=False
    )
