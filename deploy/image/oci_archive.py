"""An image as one file, an OCI archive: <https://github.com/opencontainers/image-spec/blob/main/image-layout.md>."""

import gzip
import io
import json
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Layer:
    """A layer: its digest, its size as it is pulled in bytes, and the step of the Containerfile that made it."""

    digest: str
    size: int
    made_by: str


class OciArchive:
    """The one image of an archive. Raises ValueError where there is another number of them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        index = json.loads(self._read("index.json"))
        if len(index["manifests"]) != 1:
            raise ValueError(
                f"{path} has {len(index['manifests'])} images — one is expected — build it for one platform"
            )
        manifest = self._manifest(index)
        self._layers = manifest["layers"]
        self.config: dict[str, Any] = json.loads(self._blob(manifest["config"]["digest"]))

    def layers(self) -> list[Layer]:
        """The layers, the lowest first."""
        steps = [step["created_by"] for step in self.config["history"] if not step.get("empty_layer")]
        return [Layer(layer["digest"], layer["size"], step) for layer, step in zip(self._layers, steps, strict=True)]

    def file(self, name: str) -> bytes:
        """A regular file of the image, by its path without the first slash. Raises KeyError where there is none."""
        for layer in reversed(self._layers):
            content = self._blob(layer["digest"])
            plain = gzip.decompress(content) if layer["mediaType"].endswith("gzip") else content
            with tarfile.open(fileobj=io.BytesIO(plain)) as tree:
                for member in tree:
                    if member.name.removeprefix("./").strip("/") == name and (found := tree.extractfile(member)):
                        return found.read()
        raise KeyError(name)

    def _manifest(self, index: dict[str, Any]) -> dict[str, Any]:
        """BuildKit puts an index of its own below that of the archive: the image is the first with a platform."""
        document: dict[str, Any] = json.loads(self._blob(index["manifests"][0]["digest"]))
        return document if "layers" in document else self._manifest(document)

    def _blob(self, digest: str) -> bytes:
        return self._read(f"blobs/{digest.replace(':', '/')}")

    def _read(self, name: str) -> bytes:
        with tarfile.open(self.path) as archive:
            if found := archive.extractfile(name):
                return found.read()
        raise KeyError(name)
