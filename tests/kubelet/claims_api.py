"""An API server with claims that are allocated, as the kubelet and a DRA driver ask it; and without a scheduler."""

import copy
from pathlib import Path
from typing import Any

from small_api import SmallApi

NODE = "node-1"
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
_SLICES = "/apis/resource.k8s.io/v1/resourceslices"


class AllocatedClaims(SmallApi):
    """`claims` has what there is, by name, all in the namespace `default`."""

    def __init__(self, directory: Path, claims: dict[str, dict[str, Any]] | None = None) -> None:
        self.claims = {} if claims is None else claims
        self.wiped: list[str] = []
        """The selectors by which slices were deleted: a kubelet's, at its start and when a driver is away for long."""
        super().__init__(directory)
        self.kubeconfig = directory / "kubeconfig"
        cluster = {"server": self.url, "certificate-authority": "ca.crt"}
        parts = {"clusters": ("cluster", cluster), "users": ("user", {"tokenFile": "token"})}
        parts |= {"contexts": ("context", {"cluster": "it", "user": "it"})}
        named = {key: [{"name": "it", name: value}] for key, (name, value) in parts.items()}
        self.kubeconfig.write_text(str({"kind": "Config", "current-context": "it"} | named))

    @property
    def url(self) -> str:
        """Where it is."""
        return f"https://127.0.0.1:{self.port}"

    def allocate(self, name: str, driver: str, *devices: str, uid: str = "", pods=("a",), **result: Any) -> str:
        """Have a claim with these devices of a driver's for the request `gpu`, reserved for pods by uid; its own."""
        results = [{"request": "gpu", "driver": driver, "pool": NODE, "device": each} | result for each in devices]
        self.claims[name] = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"namespace": "default", "name": name, "uid": uid or f"uid-of-{name}"},
            "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": driver}}]}},
            "status": {
                "allocation": {"devices": {"results": results}},
                "reservedFor": [{"resource": "pods", "name": each, "uid": each} for each in pods],
            },
        }
        return self.claims[name]["metadata"]["uid"]

    def asked(self) -> list[str]:
        """The claims that were read, by name, with who did: the kubelet or devherd."""
        read = zip(self.calls, self.tokens, strict=True)
        return [
            f"{token}: {path.rpartition('/')[2]}"
            for (method, path, _), token in read
            if CLAIMS in path and method == "GET"
        ]

    def answer(self, method: str, path: str, body: dict) -> tuple[int, dict]:
        path, _, query = path.partition("?")
        if self.refusal:
            return self.refusal[0], {"kind": "Status", "message": self.refusal[1]}
        if method == "DELETE" and path == _SLICES:
            self.wiped.append(query)
            return 200, {"apiVersion": "v1", "kind": "Status", "status": "Success"}
        parent, _, name = path.rpartition("/")
        if parent == CLAIMS and name in self.claims:
            return 200, copy.deepcopy(self.claims[name])
        return 404, {"apiVersion": "v1", "kind": "Status", "code": 404, "reason": "NotFound", "message": f"no {path}"}
