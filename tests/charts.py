"""Helm on the chart of deploy/helm, without a cluster."""

import os
import subprocess
import tempfile
from pathlib import Path

import yaml
from kustomizations import by_kind

CHART = Path(__file__).parents[1] / "deploy" / "helm" / "devherd"
EXAMPLES = sorted((CHART.parent / "examples").glob("*.yaml"))
_LINKED = "found symbolic link in path"


class Helm:
    """`directory` is where it keeps its own files."""

    def __init__(self, program, directory):
        self._program, self._directory = program, directory

    def manifests(self, values, chart=CHART, release="devherd", namespace="devherd", options=()):
        """What an installation with these values would send. Raises ValueError with Helm's words."""
        made = self._with_values("template", values, chart, release, namespace, "--no-hooks", *options)
        return list(filter(None, yaml.safe_load_all(made)))

    def hooks(self, values, release="devherd", namespace="devherd"):
        """What it sends later, by its hooks."""
        made = self._with_values("template", values, CHART, release, namespace)
        return [
            each
            for each in filter(None, yaml.safe_load_all(made))
            if "helm.sh/hook" in each["metadata"].get("annotations", {})
        ]

    def by_kind(self, values):
        """The same, where each kind is there once."""
        return by_kind(self.manifests(values))

    def notes(self, values, namespace="devherd"):
        """What Helm says after an installation with these values."""
        said = self._with_values("install", values, CHART, "devherd", namespace, "--dry-run=client")
        return said.partition("\nNOTES:\n")[2]

    def lint(self, values):
        """Let Helm look for mistakes in the chart. Raises ValueError with what it finds."""
        with self._file(values) as file:
            self.run("lint", "--strict", CHART, f"--values={file.name}")

    def run(self, *words):
        """What Helm prints. Raises ValueError with its words when it fails."""
        homes = {f"HELM_{each}_HOME": str(self._directory / each) for each in ("CACHE", "CONFIG", "DATA")}
        environment = os.environ | homes | {"KUBECONFIG": "/nonexistent"}
        done = subprocess.run(
            [self._program, "helm", *words], capture_output=True, text=True, check=False, env=environment
        )
        wrong = "\n".join(line for line in done.stderr.splitlines() if _LINKED not in line)
        if done.returncode or wrong:
            raise ValueError(f"{wrong}{done.stdout if done.returncode else ''}")
        return done.stdout

    def _with_values(self, command, values, chart, release, namespace, *options):
        with self._file(values) as file:
            return self.run(command, release, chart, f"--namespace={namespace}", f"--values={file.name}", *options)

    def _file(self, values):
        file = tempfile.NamedTemporaryFile("w", dir=self._directory, suffix=".yaml")  # noqa: SIM115 - the caller closes it
        yaml.safe_dump(values, file)
        file.flush()
        return file
