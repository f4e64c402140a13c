"""What `devherd scan --output json` says of a host tree, without the process."""

from pathlib import Path
from typing import Any

from devherd.config.loader import resolve
from devherd.config.model import Config
from devherd.instance.inventory_json import inventory_json
from devherd.scanner.once import scan_once


def inventory(root: Path, **vendors: Any) -> dict[str, Any]:
    """Resources and problems of the host below `root`, with these options of vendors."""
    report = scan_once(resolve(Config.model_validate({"host_root": str(root), "vendors": vendors})))
    return inventory_json(report.offers, report.problems, report.duration_seconds)


def node(path: str, permissions: str = "rw") -> dict[str, str]:
    """A node that has the same path in the container."""
    return {"host_path": path, "container_path": path, "permissions": permissions}


def by_id(inventory: dict[str, Any]) -> dict[str, list[str]]:
    """Resource name → ids of its devices."""
    return {resource["name"]: [device["id"] for device in resource["devices"]] for resource in inventory["resources"]}
