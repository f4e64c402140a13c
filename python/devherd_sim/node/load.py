"""Where a spec comes from: a preset's name, or a YAML file."""

import difflib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from devherd.errors import UsageError
from devherd_sim.node.amd import AmdSpec
from devherd_sim.node.intel_gpu import IntelGpuSpec
from devherd_sim.node.nvidia import NvidiaSpec
from devherd_sim.node.presets import preset
from devherd_sim.node.rdma import RdmaSpec
from devherd_sim.node.spec import DeviceSpec, FpgaSpec, NodeSpec, UsbSpec
from devherd_sim.node.xilinx_fpga import XilinxFpgaSpec


def load(spec: str) -> NodeSpec:
    """The node that a preset's name or a YAML file asks for. Raises UsageError when it is neither.

    In a file, `preset` is where the rest starts from: a section given beside it replaces the preset's.
    """
    path = Path(spec)
    if path.suffix not in {".yaml", ".yml"} and (not path.exists() or path.is_dir()):
        return preset(spec)
    try:
        content = yaml.safe_load(path.read_text())
        return NodeSpec.model_validate(_on_top_of_preset(content if content is not None else {}))
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read the spec {spec}", str(error), "give a preset's name or a YAML file") from error
    except yaml.YAMLError as error:
        raise UsageError(f"{spec} is not valid YAML", " ".join(str(error).split()), "correct the file") from error
    except ValidationError as error:
        raise UsageError(f"bad spec {spec}", "; ".join(_problems(error)), "correct the file") from error


def _on_top_of_preset(content: Any) -> Any:
    if not isinstance(content, dict) or "preset" not in content:
        return content
    rest = {key: given for key, given in content.items() if key != "preset"}
    return preset(str(content["preset"])).model_dump() | rest


def _problems(error: ValidationError) -> Iterator[str]:
    """Key path and complaint of each error."""
    models = (NodeSpec, FpgaSpec, NvidiaSpec, AmdSpec, IntelGpuSpec, XilinxFpgaSpec, RdmaSpec, UsbSpec, DeviceSpec)
    known = {"preset"}.union(*(model.model_fields for model in models))
    for detail in error.errors(include_url=False):
        path = ".".join(str(part) for part in detail["loc"]) or "the file"
        if detail["type"] == "extra_forbidden":
            close = difflib.get_close_matches(str(detail["loc"][-1]), known, n=1)
            yield f"{path}: unknown key" + (f", did you mean `{close[0]}`?" if close else "")
        else:
            yield f"{path}: {detail['msg'].removeprefix('Value error, ')}"
