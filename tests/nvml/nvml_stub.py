"""A library with NVML's interface that says what a test has written: stub/nvml_stub.c, and the writer of its file."""

import os
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

SOURCE = Path(__file__).parent / "stub" / "nvml_stub.c"
A100 = 42_505_273_344


def compiled(compiler: str, to: Path, *definitions: str) -> Path:
    """The stub, compiled into the file `to`."""
    options = [f"-D{definition}" for definition in definitions]
    subprocess.run(
        [compiler, "-Wall", "-Wextra", "-Werror", "-O1", "-shared", "-fPIC", *options, "-o", to, SOURCE], check=True
    )
    return to


def uuid(number: int) -> str:
    """The UUID of a test's GPU."""
    return f"GPU-{number:08x}-1111-2222-3333-444444444444"


def mig_uuid(gpu: int, slot: int) -> str:
    """The UUID of a test's MIG device."""
    return f"MIG-{gpu:04x}{slot:04x}-1111-2222-3333-444444444444"


def address(number: int) -> str:
    """Where a test's GPU is."""
    return f"0000:{0x10 + number:02x}:00.0"


@dataclass
class Stub:
    """What a stub library says; `write` makes it say so, also to processes that are waiting for it."""

    library: Path
    file: Path
    driver: str = "590.48.01"
    lines: list[str] = field(default_factory=list)
    installed: list[Path] = field(default_factory=list)
    """Where it can be loaded from."""

    def gpu(self, number: int, **values: object) -> "Stub":
        """One more GPU: an A100 unless said otherwise."""
        told = {
            "uuid": uuid(number), "pci": f"0000{address(number)}", "minor": number, "name": "NVIDIA A100-SXM4-40GB",
            "memory": A100, "major": 8, "minor_capability": 0, "brand": 14, "architecture": 7, "addressing": 0,
        }  # fmt: skip
        return self.say("gpu", **told | values)

    def mig(self, gpu: int, slot: int, profile: str, **values: object) -> "Stub":
        """One more MIG device of an A100, by the number of its GPU instance profile and its slices and memory."""
        number, compute, slices, memory = {
            "1g.5gb": (0, 1, 1, 4864), "1g.5gb+me": (7, 1, 1, 4864), "3g.20gb": (2, 3, 3, 19968),
            "1c.3g.20gb": (2, 1, 3, 19968), "1g.5gb-me": (13, 1, 1, 4864), "1g.5gb+me.all": (15, 1, 1, 4864),
            "1g.5gb+gfx": (10, 1, 1, 4864), "3g.20gb+gfx": (17, 3, 3, 19968),
        }[profile]  # fmt: skip
        told = {
            "gpu": gpu, "slot": slot, "uuid": mig_uuid(gpu, slot), "name": f"NVIDIA A100-SXM4-40GB MIG {profile}",
            "gi": 7 + slot, "ci": 0, "gpu_slices": slices, "compute_slices": compute, "memory": memory,
            "profile": number, "start": slot % 7, "size": 4 if slices > 1 else 1,
        }  # fmt: skip
        return self.say("mig", **told | values)

    def links(self, gpu: int, first: int, count: int, **values: object) -> "Stub":
        """NVLinks that are up: `type` 0 is a GPU, 2 a switch."""
        for link in range(first, first + count):
            self.say("link", gpu=gpu, link=link, **values)
        return self

    def xid(self, gpu: int, code: int, **values: object) -> "Stub":
        """An Xid happens, of an instance where `gi` and `ci` say so."""
        return self.event(gpu, 0x8, data=code, **values)

    def event(self, gpu: int, kind: int, **values: object) -> "Stub":
        """An event happens, to those that wait for it."""
        number = 1 + sum(line.startswith("event ") for line in self.lines)
        return self.say("event", number, gpu=gpu, kind=kind, **{"data": 0} | values).write()

    def field(self, gpu: int, number: int, value: int, **values: object) -> "Stub":
        """From now on a field of a GPU, or of its `link`, has this value."""
        place = {"gpu": gpu, "id": number, "link": values.pop("link", 0)}
        self.forget("field", *(f"{key}={at}" for key, at in place.items()), "")
        return self.say("field", **place, value=value, **values).write()

    def say(self, *words: object, **values: object) -> "Stub":
        """One more line of the file."""
        told = [str(word) for word in words] + [f"{key}={value}".replace(" ", "_") for key, value in values.items()]
        self.lines.append(" ".join(told))
        return self

    def forget(self, *words: object) -> "Stub":
        """No line any more that begins with the words."""
        self.lines = [line for line in self.lines if not line.startswith(" ".join(map(str, words)))]
        return self

    def write(self) -> "Stub":
        """From now on it says so."""
        temporary = self.file.with_suffix(".new")
        temporary.write_text("\n".join([f"driver {self.driver}", "cuda 13010", *self.lines, ""]))
        temporary.rename(self.file)
        return self

    @property
    def environment(self) -> dict[str, str]:
        """For the process that asks it."""
        return {**os.environ, "DEVHERD_NVML_STUB": str(self.file)}

    def put_below(self, driver_root: Path) -> Path:
        """The library where a driver installs it; the driver root is returned."""
        directory = driver_root / "usr/lib/x86_64-linux-gnu"
        directory.mkdir(parents=True, exist_ok=True)
        file = directory / f"libnvidia-ml.so.{self.driver}"
        file.write_bytes(self.library.read_bytes())
        self.installed.append(file.resolve())
        (directory / "libnvidia-ml.so.1").symlink_to(f"libnvidia-ml.so.{self.driver}")
        return driver_root
