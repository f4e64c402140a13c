"""What `kubectl apply -k` would send: deploy/kubernetes as it is, or one of its bases with components added."""

import subprocess
from operator import itemgetter
from pathlib import Path

import yaml

KUBERNETES = Path(__file__).parents[1] / "deploy" / "kubernetes"


def built(kubectl, directory):
    """The manifests of a kustomization, in its order. Raises ValueError with kubectl's words, also for a warning."""
    done = subprocess.run([*kubectl, "kustomize", directory], capture_output=True, text=True, check=False)
    if done.returncode or done.stderr:
        raise ValueError(done.stderr)
    return list(yaml.safe_load_all(done.stdout))


def by_kind(manifests):
    """The manifests by kind, of which each has one."""
    kinds = {manifest["kind"]: manifest for manifest in manifests}
    assert len(kinds) == len(manifests)
    return kinds


def of_kind(kind, manifests):
    """Those of a kind."""
    return [manifest for manifest in manifests if manifest["kind"] == kind]


def with_components(kubectl, directory, *components):
    """The manifests of base/ with these components; `directory` is where the kustomization that says so is written."""
    directory.mkdir(exist_ok=True)
    # Kustomize takes paths below and beside it, but no absolute ones.
    root = Path(*[".."] * len(directory.resolve().relative_to("/").parts), *KUBERNETES.parts[1:])
    kustomization = {
        "resources": [str(root / "base")],
        "components": [str(root / "components" / component) for component in components],
    }
    (directory / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
    return built(kubectl, directory)


def is_within(small, large):
    """Whether everything in `small` is in `large`, which may have defaults besides."""
    if isinstance(small, dict):
        return isinstance(large, dict) and all(key in large and is_within(small[key], large[key]) for key in small)
    if isinstance(small, list):
        return isinstance(large, list) and len(small) == len(large) and all(map(is_within, small, large))
    return small == large


def in_order(pod):
    """Kustomize puts what it adds in front."""
    [container] = pod["containers"]
    lists = {key: sorted(container[key], key=itemgetter("name")) for key in ("env", "volumeMounts")}
    return pod | {"containers": [container | lists], "volumes": sorted(pod["volumes"], key=itemgetter("name"))}
