"""Settings of a scan that looks for one vendor's devices and no other's."""

import json
from collections.abc import Sequence

from devherd.config.model import Config
from devherd.config.vendors import Vendors


def settings(vendor: str = "", generic: Sequence[object] = ()) -> str:
    """Settings of the scan core for a simulated node with one vendor, or without any."""
    vendors = {name: {"enabled": name == vendor} for name in Vendors.model_fields}
    config = Config.model_validate({"vendors": vendors, "generic": generic})
    return json.dumps(json.loads(config.native_json()) | {"simulated_host": True})
