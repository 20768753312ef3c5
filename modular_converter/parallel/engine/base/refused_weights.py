"""Refuse models whose weights are packed by a quantisation scheme."""

from __future__ import annotations

from typing import Any

from modular_converter.parallel.errors import ApplyError
from modular_converter.parallel.quantised.int8 import SCHEME


_OTHER = "load the weights from before they were quantised"
_AT_LOAD = "load it with from_pretrained(folder, quantization_config={kind}(dequantize=True)), save it, and load that"
# The library's way to dequantise, by the name of the scheme in `quantization_config`.
REMEDIES = {
    "bitsandbytes": "call model.dequantize() after from_pretrained, and save it",
    "compressed-tensors": _AT_LOAD.format(kind="CompressedTensorsConfig"),
    "fp8": _AT_LOAD.format(kind="FineGrainedFP8Config"),
    "higgs": "call model.dequantize() after from_pretrained, and save it",
    "metal": _AT_LOAD.format(kind="MetalConfig"),
    "mxfp4": _AT_LOAD.format(kind="Mxfp4Config"),
    SCHEME: "load it with from_pretrained, and give the model to parallelize: int8 weights can be cut",
}


def scheme_of(config: Any) -> str:
    """The name of the quantisation scheme of a model's weights; empty without one."""
    found = getattr(config, "quantization_config", None)
    if not found:
        return ""
    name = found.get("quant_method") if isinstance(found, dict) else getattr(found, "quant_method", None)
    if name is None and isinstance(found, dict):  # folders of early versions
        name = "bitsandbytes" if found.get("load_in_8bit") or found.get("load_in_4bit") else None
    return str(getattr(name, "value", name) or "an unnamed scheme")


def refuse_quantised(config: Any, name: str, loaded: bool = False) -> None:
    """Raise ``ApplyError`` for a model whose weights are packed: a plan would cut them without their scales.

    Args:
        name: of the model, for the message.
        loaded: whether the weights are in memory, where weights of torchao can be cut.
    """
    names = getattr(type(config), "sub_configs", None) or ()
    for part in (config, *(getattr(config, name, None) for name in names)):
        scheme = scheme_of(part)
        if scheme and not (loaded and scheme == SCHEME):
            remedy = REMEDIES.get(scheme, _OTHER)
            raise ApplyError(
                f"{name}: its weights are quantised ({scheme}), packed with scales that a plan does not cut; {remedy}"
            )
