"""The harness: of the Kubernetes release of its go.mod, or of an older one."""

import os
import re
from pathlib import Path

from go_program import GoProgram

RELEASE = os.environ.get("DEVHERD_TEST_KUBERNETES", "")
"""The older minor release whose kubelet the tests run beside, such as "1.34"; empty for the one of go.mod."""

_SOURCES = Path(__file__).with_name("harness")
_GO_MOD = (_SOURCES / "go.mod").read_text()
NEWEST = re.search(r"k8s\.io/kubernetes v(\d+\.\d+)", _GO_MOD)[1]
"""The minor release of go.mod."""
KUBERNETES = tuple(int(number) for number in (RELEASE or NEWEST).split("."))
"""The minor release that the tests run beside, as numbers: (1, 37). For what releases do differently."""


def harness_program(release: str, fixture: str = "harness") -> GoProgram:
    """The harness of a minor release, such as "1.34", that has its files in harness/releases; "" is that of go.mod.

    `fixture` is the one by which tests get it. Raises ValueError for a release that has none.
    """
    title = "the kubelet's device manager"
    if not release:
        return GoProgram(_SOURCES, fixture, title)
    modfile = f"releases/v{release}.mod"
    if not (_SOURCES / modfile).exists():
        raise ValueError(
            f"DEVHERD_TEST_KUBERNETES is {release!r} — harness/releases has {', '.join(older_releases())} — "
            "name one of these, or none for the release of go.mod"
        )
    tag = f"kubernetes_{release.replace('.', '_')}"
    return GoProgram(_SOURCES, fixture, f"{title} of {release}", tags=tag, modfile=modfile)


def older_releases() -> list[str]:
    """The minor releases beside the one of go.mod."""
    return sorted(path.stem.removeprefix("v") for path in (_SOURCES / "releases").glob("*.mod"))
