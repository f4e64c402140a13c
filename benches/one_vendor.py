"""Settings of a scan that looks for one vendor's devices and no other's."""

_VENDORS = ("intel_fpga", "nvidia", "amd", "intel_gpu", "xilinx_fpga", "rdma")


def only(vendor: str | None, **options: object) -> dict[str, dict[str, object]]:
    """The section `vendors` as the scan core is told; None for none of them."""
    return {name: {"enabled": name == vendor, **(options if name == vendor else {})} for name in _VENDORS}
