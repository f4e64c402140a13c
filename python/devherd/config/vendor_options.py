"""What the options of every vendor have in common."""

from typing import Any, Literal

from devherd.config.resolved import Preference
from devherd.config.section import Section

Enabled = Literal["auto", True, False]


class VendorOptions(Section):
    """Options of every vendor."""

    enabled: Enabled = "auto"
    """Whether its devices are looked for; `true`: it is a problem if none is found."""

    def native(self) -> dict[str, Any]:
        """What the scan core needs of them."""
        return self.model_dump(mode="json") | {"enabled": self.enabled is not False}

    def preferred(self, *, shared: bool) -> Preference | None:
        """Which devices to prefer for a container, if an option sets it; None = the default of the vendor's row."""
        del shared
        return None
