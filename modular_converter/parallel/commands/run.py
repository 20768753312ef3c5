"""``modular-plan run``: compare a model on several devices with one device: outputs, memory, tokens a second."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from modular_converter.parallel.commands.common import overrides_of, reports_errors, set_option
from modular_converter.parallel.errors import BuildError, PlanError, one_line


@click.command()
@click.argument("model")
@set_option
@click.option(
    "--num-gpus",
    default=2,
    show_default=True,
    type=click.IntRange(1),
    help="The number of devices; without GPUs, the number of processes on the CPU.",
)
@click.option("--device", type=click.Choice(["cpu", "cuda"]), help="By default GPUs, if there are any.")
@click.option("--dtype", type=click.Choice(["float32", "float16", "bfloat16"]), help="By default the model's own.")
@click.option("--plan", help="The file of a plan; by default the plan in the model's classes, or the derived plan.")
@click.option(
    "--tokens", default=32, show_default=True, type=click.IntRange(1), help="The number of tokens to generate."
)
@click.option("--compile", "compiled", is_flag=True, help="Generate with a static cache and a compiled step.")
@click.option(
    "--compare/--no-compare", default=True, help="Run the model whole on one device first; not needed for a folder."
)
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
    compare: bool,
) -> None:
    """Run MODEL on several devices and compare with one.

    MODEL is a folder with a saved model, of which each device reads its share, a configuration (config.json) whose model
    gets random weights, a model type (a small random one), or a class path. Exit code: 0 they agree, 1 they do not, 2
    could not.
    """
    import torch
    from transformers.utils import logging

    from modular_converter.parallel.api import parallelize
    from modular_converter.parallel.tiny.target import is_type

    logging.set_verbosity_error()
    kind = None if dtype is None else getattr(torch, dtype)
    place = device or ("cuda" if torch.cuda.is_available() else "cpu")
    source: Any = model if not settings and is_saved(Path(model)) and not is_type(model) else None
    want, one = None, None
    if compare or source is None:
        made, _ = load(model, settings, kind)
        if compare:
            want, one = _answers(made.to(place), _inputs(made, place), tokens, compiled)
            made.to("cpu")
        source, made = made if source is None else source, None
    keywords: dict[str, Any] = {"dtype": kind, "verbose": "simple"}
    sharded = parallelize(source, num_gpus, device=device, plan=plan, compile=compiled, **keywords)
    try:
        got, several = _answers(sharded, _inputs(sharded, place), tokens, compiled)
    finally:
        sharded._placement.end()
    if want is None:
        if several is not None:
            click.echo(f"tokens a second: {num_gpus} devices {several:.1f}")
        return
    worst = deviation(got, want)
    # Half precision keeps about three digits, and sums are in another order.
    limit = 2e-4 if next(sharded.parameters()).dtype == torch.float32 else 5e-2
    click.echo(f"outputs differ by {worst:.1e} of their scale at most (allowed: {limit:.0e})")
    if one is not None and several is not None:
        click.echo(f"tokens a second: one device {one:.1f}, {num_gpus} devices {several:.1f}")
    raise SystemExit(0 if worst <= limit else 1)


def is_saved(path: Path) -> bool:
    """Whether a folder has a model with its weights."""
    return (path / "config.json").is_file() and any(path.glob("*.safetensors"))


def _inputs(model: Any, place: str) -> dict[str, Any]:
    """Inputs for one forward, on a device."""
    from modular_converter.parallel.tiny.inputs import make_inputs

    found = make_inputs(model)
    return {name: value.to(place) if hasattr(value, "to") else value for name, value in found.items()}


def load(model: str, settings: tuple[str, ...], dtype: Any = None) -> tuple[Any, dict[str, Any]]:
    """The model in eval mode on the CPU, and inputs for one forward.

    Args:
        dtype: of the weights; None to keep theirs.

    Raises ``PlanError`` if MODEL is unknown, or cannot be loaded or built.
    """
    import torch

    from modular_converter.parallel.tiny.build import build, target_of
    from modular_converter.parallel.tiny.inputs import make_inputs
    from modular_converter.parallel.tiny.target import is_type

    path = Path(model)
    if not path.exists() or is_type(model):
        try:
            found = build(target_of(model, "causal", saved=True), overrides_of(settings))
        except BuildError:
            found = build(target_of(model), overrides_of(settings))
        return found.model if dtype is None else found.model.to(dtype), found.inputs
    if path.is_dir() and not (path / "config.json").exists():
        raise BuildError(f"{model}: has no config.json; give a saved model's folder, a configuration or a model type")
    try:
        made = _from_path(path, overrides_of(settings), dtype)
    except PlanError:
        raise
    except Exception as error:  # the library may raise anything for a broken file
        raise BuildError(f"{model}: cannot be loaded: {one_line(error, 400)}") from error
    with torch.no_grad():
        return made, make_inputs(made)


def _from_path(path: Path, overrides: dict[str, Any], dtype: Any) -> Any:
    """The model of a folder, or a model with random weights if there is only a configuration."""
    from modular_converter.parallel.engine.checkpoint.folder import class_of
    from modular_converter.parallel.tiny.saved_config import class_for, saved_config, saved_model

    if is_saved(path):
        config, kind = class_of(path, None, overrides)
        return saved_model(kind, path, dtype, config)
    if path.is_dir() and any(path.glob("pytorch_model*")):
        raise BuildError(
            f"{path}: its .bin files hold pickled objects and are not read; load the model with from_pretrained and save "
            "it with save_pretrained, which writes safetensors"
        )
    config = saved_config(path, overrides)
    made = class_for(config, path)(config)
    return (made if dtype is None else made.to(dtype)).eval()


def _answers(model: Any, inputs: dict[str, Any], tokens: int, compiled: bool) -> tuple[list[Any], float | None]:
    """The floating outputs of a forward, and the tokens a second of a generation; None if the model does not generate."""
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
    """The tokens a second of the second run; None if the inputs of a forward are not a prompt."""
    try:
        generate()
    except (ValueError, TypeError):
        return None
    start = time.perf_counter()
    generate()
    return tokens / (time.perf_counter() - start)


def deviation(got: list[Any], want: list[Any]) -> float:
    """The largest error of a tensor, as a part of its scale; infinite if lengths or shapes differ.

    In half precision, single entries may differ by much of a small scale, so the norm of the difference counts.
    """
    from modular_converter.parallel.engine.base.trials_of_model import norm_error
    from modular_converter.parallel.proof.judge import HALF_TYPES, relative_error

    if len(got) != len(want):
        return float("inf")
    pairs = zip(got, want)
    errors = (norm_error(a, b) if b.dtype in HALF_TYPES else relative_error(a.float(), b.float()) for a, b in pairs)
    return max(errors, default=0.0)
