"""Compare the rules of vLLM and SGLang in `modular_converter/parallel/exports` with the installed packages.

`python utils/check_exports.py vllm llama qwen3 …` in an environment with the package (`pip install --no-deps vllm`, and what
its import asks for; no GPU) and this project. For each model, the exported text goes into the configuration as
`--hf-overrides` puts it there, transformers builds the base model, and the package's own `recursive_replace` gives each
linear layer its style, which must be that of the plan. Then each style must make the parallel layer that the plan means.
The constructors of layers, which need devices, are replaced, and vLLM's fusers, which join projections, are left out. Exit
code: 0 the same, 1 not.
"""

from __future__ import annotations

import argparse
import functools
import json
import sys
import types
import warnings
from collections.abc import Callable
from typing import Any
from unittest import mock


# Our style -> the part of the class's name, and the arguments, of both packages' parallel layers.
LAYERS: dict[str, tuple[str, dict[str, bool]]] = {
    "colwise": ("ColumnParallelLinear", {}),
    "colwise_gather_output": ("ColumnParallelLinear", {"gather_output": True}),
    "rowwise": ("RowParallelLinear", {}),
    "rowwise_split_input": ("RowParallelLinear", {"input_is_parallel": False}),
    "replicate": ("ReplicatedLinear", {}),
}
KEYWORDS = ("gather_output", "input_is_parallel")
DEFAULT = "llama bert qwen3 mixtral gemma2 deepseek_v3 olmo2 gpt_neox"


def _bound(kind: type, **attributes: Any) -> Any:
    """An object with the methods of a class and these attributes, without its constructor."""
    found = types.SimpleNamespace(**attributes)
    for name in dir(kind):
        value = getattr(kind, name)
        if isinstance(value, types.FunctionType) and name not in attributes and not name.startswith("__"):
            setattr(found, name, functools.partial(value, found))
    return found


def _recorder(styles: dict[str, str]) -> Callable[..., Any]:
    def note(linear: Any, style: str = "replicate", *rest: Any, prefix: str = "", **more: Any) -> Any:
        styles[prefix.removeprefix("model.")] = style
        return linear

    return note


def vllm_styles(model: Any) -> dict[str, str]:
    """Path -> style, as vLLM's transformers backend gives it."""
    from vllm.model_executor.models.transformers import base

    styles: dict[str, str] = {}
    text = model.config.get_text_config()
    own = _bound(
        base.Base,
        model=model,
        config=model.config,
        text_config=text,
        quant_config=None,
        model_config=None,
        vllm_config=None,
        tp_group=types.SimpleNamespace(world_size=2),
        ignore_unexpected_prefixes=[],
        packed_modules_mapping={},
        fusers={},
        attention_fusers={},
        _layer_names={},
        _target_class=None,
        hf_to_vllm_mapper=base.WeightsMapper(),
    )

    def keep(module: Any, *rest: Any, **more: Any) -> Any:
        return module

    class NoFusers(dict):
        def __init__(self, *rest: Any) -> None:
            super().__init__()

        def __missing__(self, key: Any) -> list[Any]:
            return []

    replaced: dict[str, Any] = {"replace_linear_class": _recorder(styles), "Fusers": NoFusers}
    replaced |= dict.fromkeys(("replace_conv_class", "replace_embedding_class", "replace_layernorm_class"), keep)
    with mock.patch.multiple(base, **replaced):
        own.recursive_replace()
    return styles


def sglang_styles(model: Any) -> dict[str, str]:
    """Path -> style, as SGLang's transformers backend gives it."""
    from sglang.srt.models import transformers as module

    styles: dict[str, str] = {}
    text = model.config.get_text_config()
    own = _bound(module.TransformersBase, model=model, config=model.config, text_config=text, quant_config=None)
    parallel = types.SimpleNamespace(tp_size=2)
    replaced: dict[str, Any] = {"replace_linear_class": _recorder(styles), "get_parallel": lambda: parallel}
    with mock.patch.multiple(module, replace_rms_norm_class=lambda norm, *rest: norm, **replaced):
        own.recursive_replace()
    return styles


def layers_of(module: Any, theirs: dict[str, str]) -> dict[str, tuple[str, dict[str, bool]]]:
    """Our style -> the class and arguments that a package's ``replace_linear_class`` uses for its name."""
    import torch

    found = {}
    for ours, name in {**theirs, "replicate": "replicate"}.items():
        made: list[tuple[str, dict[str, bool]]] = []
        kinds: dict[str, Any] = {}
        for kind in ("ColumnParallelLinear", "RowParallelLinear", "ReplicatedLinear"):

            def init(self: Any, kind: str = kind, made: Any = made, **given: Any) -> None:
                made.append((kind, {key: given[key] for key in KEYWORDS if key in given}))

            kinds[kind] = type(kind, (), {"__init__": init})
        with mock.patch.multiple(module, **kinds):
            module.replace_linear_class(torch.nn.Linear(2, 2), name, None, prefix="x")
        found[ours] = made[0]
    return found


def norms_left(model: Any) -> list[str]:
    """The norms over a projection that vLLM does not replace by its own, which gathers."""
    from vllm.model_executor.models.transformers.fuser import get_fuser
    from vllm.model_executor.models.transformers.fusers import RMSNormFuser

    from modular_converter.parallel.exports.export import norms_of_projections

    paths = norms_of_projections(model)
    return [path for path in paths if get_fuser(model.get_submodule(path), RMSNormFuser) is None]


def check(tool: str, name: str) -> str:
    """``the same``, or the first difference, or why the model is not exported."""
    import torch

    from modular_converter.parallel.errors import PlanError
    from modular_converter.parallel.exports.export import TOOLS, export
    from modular_converter.parallel.exports.serving import SGLANG_STYLES, VLLM_STYLES
    from modular_converter.parallel.proof.prove import derive_model
    from modular_converter.parallel.tiny.build import target_of

    derived = derive_model(target_of(name))
    try:
        found = export(derived, TOOLS[tool])
    except PlanError as error:
        return f"not exported: {error}"
    small: Any = derived.small.model
    config = small.config
    config.update(json.loads(found.text))  # as --hf-overrides and --json-model-override-args do
    with torch.device("meta"):
        model = type(small)(config)
    styles = {"vllm": vllm_styles, "sglang": sglang_styles}[tool](model)
    names = VLLM_STYLES if tool == "vllm" else SGLANG_STYLES
    assert TOOLS[tool].styles is not None
    wanted = {path: names[style] for path, style in TOOLS[tool].styles(found.plan, small).items()}
    other = [path for path in styles if styles[path] != wanted.get(path, "replicate") and ".experts." not in path]
    missing = sorted(wanted.keys() - styles.keys())
    if tool == "vllm" and (left := norms_left(small)):
        return f"DIFFERENT: {left[0]}: vllm does not gather the shares that this norm takes"
    if not other and not missing:
        return f"the same: {len(wanted)} of {len(styles)} linear layers are sharded"
    path = (other or missing)[0]
    return f"DIFFERENT: {path}: {tool} takes {styles.get(path)}, the plan {wanted.get(path, 'replicate')}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tool", choices=["vllm", "sglang"])
    parser.add_argument("models", nargs="*", default=DEFAULT.split())
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    from importlib import import_module
    from importlib.metadata import version

    from modular_converter.parallel.exports.serving import SGLANG_STYLES, VLLM_STYLES

    places = {"vllm": "vllm.model_executor.models.transformers.utils", "sglang": "sglang.srt.models.transformers"}
    names = {"vllm": VLLM_STYLES, "sglang": SGLANG_STYLES}[options.tool]
    made = layers_of(import_module(places[options.tool]), names)
    good = made == LAYERS
    print(f"{options.tool} {version(options.tool)}: styles {'the same' if good else f'DIFFERENT: {made}'}", flush=True)
    for name in options.models:
        said = check(options.tool, name)
        good &= "DIFFERENT" not in said
        print(f"{name}: {said}", flush=True)
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
