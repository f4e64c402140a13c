"""Prints the image's bill of materials (CycloneDX 1.6, JSON): Python packages, Rust crates and Debian packages.

    materials.py PACKAGES ENVIRONMENT STATUS

PACKAGES is what `cyclonedx-py environment` says of ENVIRONMENT, the directory that devherd is installed in; the crates
are of the bill that its wheel has from maturin; STATUS is dpkg's list of what is installed.
"""

import json
import platform
import sys
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any
from urllib.parse import quote

Component = dict[str, Any]


def together(document: dict[str, Any], *others: list[Component]) -> dict[str, Any]:
    """The bill with the others' components added; what is there twice is named once."""
    named = {component["bom-ref"]: component for component in chain(document["components"], *others)}
    return {**document, "components": [named[reference] for reference in sorted(named)]}


def crates_of(bill: dict[str, Any]) -> list[Component]:
    """The crates of a bill of maturin's: name, version, package URL and licences of each."""
    kept = ("type", "name", "version", "purl", "licenses")
    crates = [component for component in bill["components"] if component.get("purl", "").startswith("pkg:cargo/")]
    return [{"bom-ref": crate["purl"], **{key: crate[key] for key in kept if key in crate}} for crate in crates]


def debian_packages(status: str) -> Iterator[Component]:
    """The installed packages of /var/lib/dpkg/status, whose paragraphs deb822(5) describes."""
    for paragraph in status.split("\n\n"):
        fields = dict(
            line.split(": ", 1) for line in paragraph.splitlines() if ": " in line and not line.startswith(" ")
        )
        if fields.get("Status") != "install ok installed":
            continue
        name, version = fields["Package"], fields["Version"]
        address = f"pkg:deb/debian/{name}@{quote(version, safe='')}?arch={fields['Architecture']}"
        yield {"type": "library", "bom-ref": address, "name": name, "version": version, "purl": address}


def main(packages: Path, environment: Path, status: Path) -> None:
    """Read the three and print the whole."""
    crates = [
        crate
        for bill in environment.glob("lib/python3*/site-packages/devherd-*.dist-info/sboms/*.json")
        for crate in crates_of(json.loads(bill.read_text("utf-8")))
    ]
    if not crates:
        sys.exit(
            f"materials.py: no bill of crates in {environment} — the wheel was not built by maturin — build it anew"
        )
    version = platform.python_version()
    interpreter = {"type": "application", "bom-ref": f"python@{version}", "name": "python", "version": version}
    document = together(
        json.loads(packages.read_text("utf-8")), crates, [interpreter, *debian_packages(status.read_text("utf-8"))]
    )
    json.dump(document, sys.stdout, indent=1, sort_keys=True)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
