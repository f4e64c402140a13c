"""A pod's YAML manifest, read for what a device manager looks at."""

from pathlib import Path
from typing import Any

import yaml

from devherd.errors import UsageError
from devherd_sim.kubelet.pod import ContainerSpec, Pod


def load(path: Path) -> Any:
    """What is in a file. Raises UsageError when it cannot be read or is not valid YAML."""
    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise UsageError(
            f"cannot read {path}", " ".join(str(error).split()), "give a pod's manifest in YAML"
        ) from error


def parse(content: Any, source: str = "the manifest") -> Pod:
    """The pod in a parsed manifest. Raises UsageError for anything else."""
    try:
        if content["kind"] != "Pod":
            raise _no_pod(source, f"its kind is {content['kind']}")
        metadata, spec = content["metadata"], content["spec"]
        return Pod(
            name=str(metadata["name"]),
            namespace=str(metadata.get("namespace", "default")),
            uid=str(metadata.get("uid", "")),
            init_containers=tuple(_container(each) for each in spec.get("initContainers") or ()),
            containers=tuple(_container(each) for each in spec["containers"]),
        )
    except KeyError as error:
        raise _no_pod(source, f"it lacks {error.args[0]}") from error
    except (TypeError, AttributeError, ValueError) as error:
        raise _no_pod(source, str(error)) from error


def _container(content: Any) -> ContainerSpec:
    limits = (content.get("resources") or {}).get("limits") or {}
    return ContainerSpec(
        name=str(content["name"]),
        # Only names with a slash can be extended resources; the device manager ignores `cpu` and `memory`.
        limits={name: int(amount) for name, amount in limits.items() if "/" in name},
        restartable=content.get("restartPolicy") == "Always",
    )


def _no_pod(source: str, why: str) -> UsageError:
    return UsageError(f"{source} is not a pod", why, "give a manifest with kind, metadata.name and spec.containers")
