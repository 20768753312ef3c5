"""Find the plans to write into the classes of a file, each proven in the form that the library reads."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from modular_converter.parallel.errors import PlanError, WriteError
from modular_converter.parallel.plans.class_settings import HEAD_PLAN, Setting, base_settings, gathered_plan, holding
from modular_converter.parallel.plans.emit import inexpressible_for_library, to_library
from modular_converter.parallel.plans.text_checks import placed
from modular_converter.parallel.proof.on_processes import RankPool
from modular_converter.parallel.proof.prove import Derived, derive_model, prove
from modular_converter.parallel.solve.derive import from_library
from modular_converter.parallel.tiny.target import ModelingFile


@dataclass(frozen=True)
class _Head:
    """A model with a head on the base model: its derived plan, and the plan in the library's vocabulary."""

    model_class: type[Any]
    derived: Derived
    entries: Mapping[str, str]


def settings_to_write(
    file: ModelingFile,
    bases: Sequence[type[Any]],
    overrides: Mapping[str, Any],
    pool: RankPool | None,
    say: Callable[[str], None],
) -> list[Setting]:
    """The plans to write into the classes of a file, for the given base models and the heads on them.

    Heads also run with their base model's plan. If the library's loader cannot run a head whose output weight is tied to a
    sharded embedding, the embedding is not sharded.

    Args:
        pool: the ranks for the proofs, by our application and through the library's loader; None to skip the proofs.
        say: gets a line about each class.

    Raises ``WriteError`` for a plan that is refused or empty, or that transformers' vocabulary cannot express; the message
    has the reasons.
    """
    found: list[Setting] = []
    for base in bases:
        derived = derive_model(file.target(base), overrides, uses=True)
        entries = _entries(derived, checked=pool is not None)
        heads = list(_derived_heads(file, derived, overrides, pool is not None, say))
        found += _family_settings(derived, entries, heads, pool, say)
    return found


def _family_settings(
    derived: Derived,
    entries: dict[str, str],
    heads: Sequence[_Head],
    pool: RankPool | None,
    say: Callable[[str], None],
) -> list[Setting]:
    name = type(derived.small.model).__name__
    without = {key: style for key, style in entries.items() if style != "embedding_rowwise"}
    for whole_vocabulary, share in enumerate((entries, without)):
        if not share:
            raise WriteError(f"{name}: nothing of it can be sharded, so there is no plan to write")
        own = base_settings(derived.small.model, share)
        refused = _refusal(derived, own, share, pool)
        if refused:
            raise WriteError(f"{name}: {refused}; --unverified writes the plan all the same")
        lines = [f"{name}: {_state(pool)}"]
        failed = ""
        for head in heads:
            setting, failed = _head_setting(head, own, pool)
            own += [setting] if setting is not None else []
            lines.append(f"{head.model_class.__name__}: {failed or _state(pool)}")
            if failed and not whole_vocabulary and without != entries:
                say(f"{lines[-1]}; the vocabulary stays whole for it")
                break
        else:
            for line in lines:
                say(line)
            return own
    raise AssertionError("the second round ends the loop")


def _head_setting(head: _Head, base: Sequence[Setting], pool: RankPool | None) -> tuple[Setting | None, str]:
    """A head's addition to its base model's plan (None if it adds nothing), and the reason if the head does not run."""
    with holding([*base, Setting(head.model_class, HEAD_PLAN, {})]):
        inherited = gathered_plan(head.derived.small.model)
    added = {key: style for key, style in head.entries.items() if key not in inherited}
    tried = [added, {}] if added else [{}]
    reasons = []
    for entries in tried:
        setting = Setting(head.model_class, HEAD_PLAN, entries)
        refused = _refusal(head.derived, [*base, setting], entries, pool)
        if not refused:
            return (setting if entries or setting.held else None), ""
        reasons.append(refused)
    return None, reasons[0]


def _entries(derived: Derived, checked: bool) -> dict[str, str]:
    """The plan in the library's vocabulary.

    Raises ``WriteError`` with the rules that this vocabulary lacks, or with the reason why the plan is refused.
    """
    name = derived.target.model_class.rpartition(".")[2]
    if checked and not derived.verdict.passed:
        raise WriteError(
            f"{name}: the derived plan is refused: {placed(derived.verdict.layer, derived.verdict.reason)}; "
            "--unverified writes it all the same"
        )
    inexpressible = inexpressible_for_library(derived.plan)
    if inexpressible:
        raise WriteError(
            f"{name}: transformers' vocabulary cannot say this plan; `--json FILE` writes it as JSON, which can\n  "
            + "\n  ".join(map(str, inexpressible))
        )
    return to_library(derived.plan, derived.small.model)


def _refusal(derived: Derived, settings: Sequence[Setting], entries: Mapping[str, str], pool: RankPool | None) -> str:
    """The reason against writing the plan that the library gathers from the settings; "" if there is none."""
    with holding(settings):
        whole = gathered_plan(derived.small.model)
    lost = [key for key, style in entries.items() if whole.get(key) != style]
    if lost:
        return f"the library does not gather {', '.join(lost)} from its classes"
    plan = from_library(derived.target.name, whole)
    for route in () if pool is None else ("ours", "library"):
        assert pool is not None
        verdict = prove(derived, plan, pool, route)
        if not verdict.passed:
            where = "through transformers' loader" if route == "library" else "on its ranks"
            return f"the plan is refused {where}: {placed(verdict.layer, verdict.reason)}"
    return ""


def _state(pool: RankPool | None) -> str:
    if pool is None:
        return "not verified"
    return f"verified on {pool.size} ranks, by our application and through transformers' loader"


def _derived_heads(
    file: ModelingFile, base: Derived, overrides: Mapping[str, Any], checked: bool, say: Callable[[str], None]
) -> Iterator[_Head]:
    """The heads of the file on a base model that run and whose plans the library's vocabulary can express."""
    for one in _heads(file, base.small.model):
        try:
            derived = derive_model(file.target(one), overrides, uses=True)
            yield _Head(one, derived, _entries(derived, checked))
        except PlanError as error:
            say(f"{one.__name__}: left as it is: {error}")


def _heads(file: ModelingFile, model: torch.nn.Module) -> Iterator[type[Any]]:
    """The classes of the file with the base model's configuration that have an output over the vocabulary."""
    config: Any = model.config
    for one in file.classes():
        if one is type(model) or one.config_class is not type(config):
            continue
        try:
            with torch.device("meta"):
                output = one(config).get_output_embeddings()
        except Exception:  # the head needs other configuration values
            continue
        if output is not None:
            yield one
