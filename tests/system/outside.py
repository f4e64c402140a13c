"""The herd from outside: supervisorctl, HTTP and commands, as an operator has them."""

import asyncio
import functools
import json
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from devherd import spool
from devherd.proto import spool_pb2
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


async def until_page(testbed: Testbed, path: str, condition: Callable[[int, str], object]) -> str:
    """The page, once its status and body fulfil the condition."""
    for _ in range(400):
        status, body = await get(testbed, path)
        if condition(status, body):
            return body
        await asyncio.sleep(0.05)
    raise AssertionError(f"{path}: {status} {body}\n{testbed.log}")


async def until_ready(testbed: Testbed) -> None:
    """Until /readyz says so: a resource is registered before its process has written that it is."""
    assert await until_page(testbed, "/readyz", lambda status, _: status == 200) == "ok\n"


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


async def until_scanned(testbed: Testbed) -> None:
    """Until the scanner has looked: counts of errors are compared with those that it, not the start, has read."""
    scanner = await testbed.child("scanner")
    scanned = functools.partial(spool.read, testbed.settings.scan_file, spool_pb2.ScanSummary)
    await testbed.until(lambda: scanned().timestamp_seconds > scanner.started_timestamp_seconds, "it has looked")


async def until_explained(
    testbed: Testbed, resource: str, device: str, condition: Callable[[Any], object] = bool
) -> Any:
    """What `devherd explain` tells of a device, once it fulfils the condition: the kubelet may know it before."""
    words = ("explain", "--run-dir", str(testbed.settings.run_dir), "--output", "json", resource, device)
    for _ in range(200):
        told = json.loads((await asyncio.to_thread(devherd, *words)).stdout)
        if condition(told):
            return told
        await asyncio.sleep(0.05)
    raise AssertionError(f"{told}\n{testbed.log}")
