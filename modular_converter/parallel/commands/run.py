"""``modular-plan run``: a model on several devices beside one device: agreement, memory, tokens a second."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from modular_converter.parallel.commands.common import overrides_of, reports_errors, set_option


@click.command()
@click.argument("model")
@set_option
@click.option("--num-gpus", default=2, show_default=True, type=click.IntRange(1), help="Devices; CPU ranks without.")
@click.option("--device", type=click.Choice(["cpu", "cuda"]), help="GPUs where there are some, if not given.")
@click.option("--dtype", type=click.Choice(["float32", "float16", "bfloat16"]), help="As in the model, if not given.")
@click.option("--plan", help="A plan's file; the one in the model's classes or the derived one, if not given.")
@click.option("--tokens", default=32, show_default=True, type=click.IntRange(1), help="How many to generate.")
@click.option("--compile", "compiled", is_flag=True, help="Generate with a static cache and a compiled step.")
@reports_errors
def run(
    model: str,
    settings: tuple[str, ...],
    num_gpus: int,
    device: str | None,
    dtype: str | None,
    plan: str | None,
    tokens: int,
    compiled: bool,
) -> None:
    """Run MODEL on several devices and compare with one.

    MODEL is a folder with a saved model, a configuration (config.json) whose model gets random weights, a model type
    (a small random one), or a class path. Exit code: 0 they agree, 1 they do not, 2 could not.
    """
    import torch
    from transformers.utils import logging

    from modular_converter.parallel.api import parallelize

    logging.set_verbosity_error()
    made, inputs = load(model, settings)
    if dtype is not None:
        made = made.to(getattr(torch, dtype))
    place = device or ("cuda" if torch.cuda.is_available() else "cpu")
    inputs = {name: _placed(value, place) for name, value in inputs.items()}
    whole = made.to(place)
    want, one = _answers(whole, inputs, tokens, compiled)
    parallelize(whole.to("cpu"), num_gpus, device=device, plan=plan, compile=compiled, verbose="simple")
    try:
        got, several = _answers(whole, inputs, tokens, compiled)
    finally:
        whole._placement.end()
    worst = deviation(got, want)
    limit = _limit(made)
    click.echo(f"outputs differ by {worst:.1e} of their scale at most (allowed: {limit:.0e})")
    if one is not None and several is not None:
        click.echo(f"tokens a second: one device {one:.1f}, {num_gpus} devices {several:.1f}")
    raise SystemExit(0 if worst <= limit else 1)


def load(model: str, settings: tuple[str, ...]) -> tuple[Any, dict[str, Any]]:
    """The model in eval mode on the CPU, and inputs for one forward.

    Raises:
        PlanError: it is none of the four kinds, or cannot be built.
    """
    import torch

    from modular_converter.parallel.errors import BuildError, PlanError
    from modular_converter.parallel.tiny.build import build, target_of
    from modular_converter.parallel.tiny.inputs import make_inputs

    path = Path(model)
    if not path.exists():
        try:
            found = build(target_of(model, "causal"), overrides_of(settings))
        except BuildError:
            found = build(target_of(model), overrides_of(settings))
        return found.model, found.inputs
    folder = path if path.is_dir() else path.parent
    if not (folder / "config.json").exists() and path.is_dir():
        raise BuildError(f"{model}: has no config.json; give a saved model's folder, a configuration or a model type")
    try:
        made = _from_folder(folder if path.is_dir() else path, path.is_dir(), overrides_of(settings))
    except PlanError:
        raise
    except Exception as error:  # whatever the library raises for a broken file
        raise BuildError(f"{model}: cannot be loaded: {type(error).__name__}: {error}") from error
    with torch.no_grad():
        return made, make_inputs(made)


def _from_folder(path: Path, folder: bool, overrides: dict[str, Any]) -> Any:
    import transformers

    config = transformers.AutoConfig.from_pretrained(path, **overrides)
    names = list(getattr(config, "architectures", None) or ())
    kind = getattr(transformers, names[0], None) if names else None
    weights = folder and any(path.glob("*.safetensors*")) or folder and any(path.glob("pytorch_model*"))
    if weights:
        return (kind or transformers.AutoModel).from_pretrained(path, config=config).eval()
    if kind is not None:
        return kind(config).eval()
    auto = transformers.AutoModelForCausalLM
    auto = auto if type(config) in auto._model_mapping else transformers.AutoModel
    return auto.from_config(config).eval()


def _placed(value: Any, place: str) -> Any:
    return value.to(place) if hasattr(value, "to") else value


def _answers(model: Any, inputs: dict[str, Any], tokens: int, compiled: bool) -> tuple[list[Any], float | None]:
    """The floating outputs of a forward, and tokens a second of a generation where the model generates."""
    import torch

    from modular_converter.parallel.trace.record import tensors_in

    with torch.no_grad():
        torch.manual_seed(0)
        outputs = [t.detach().cpu() for t in tensors_in(model(**inputs)) if t.is_floating_point()]
        if "input_ids" not in inputs or not getattr(model, "can_generate", lambda: False)():
            return outputs, None
        more: dict[str, Any] = {"cache_implementation": "static"} if compiled else {}
        given = {name: value for name, value in inputs.items() if name in ("input_ids", "attention_mask")}

        def generate() -> Any:
            return model.generate(**given, max_new_tokens=tokens, min_new_tokens=tokens, do_sample=False, **more)

        return outputs, _rate(generate, tokens * int(inputs["input_ids"].shape[0]))


def _rate(generate: Callable[[], Any], tokens: int) -> float | None:
    """Tokens a second of the second run; None where the inputs of one forward are no prompt."""
    try:
        generate()
    except (ValueError, TypeError):
        return None
    start = time.perf_counter()
    generate()
    return tokens / (time.perf_counter() - start)


def deviation(got: list[Any], want: list[Any]) -> float:
    """The largest error of a tensor, as a part of its scale; infinite for lists of different lengths."""
    from modular_converter.parallel.proof.judge import relative_error

    if len(got) != len(want):
        return float("inf")
    return max((relative_error(a.float(), b.float()) for a, b in zip(got, want)), default=0.0)


def _limit(model: Any) -> float:
    """Half precision keeps about three digits, and sums in another order."""
    import torch

    return 2e-4 if next(model.parameters()).dtype == torch.float32 else 5e-2
