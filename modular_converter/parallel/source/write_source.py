"""Write plans into the source of a model, each proven in the form that the library reads.

They go into its modular file if there is one, else into the files of its classes.
"""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from modular_converter.api import convert_source
from modular_converter.convert.emit.banner import is_generated
from modular_converter.convert.schedule import required_files
from modular_converter.convert.source.library import Library
from modular_converter.files.arguments import discover
from modular_converter.files.atomic_write import write_atomically
from modular_converter.files.read import is_installed
from modular_converter.findings import ConversionError
from modular_converter.parallel.errors import PlanError, WriteError
from modular_converter.parallel.plans.class_settings import HEAD_PLAN, Setting, base_settings, gathered_plan, holding
from modular_converter.parallel.plans.emit import inexpressible_for_library, to_library
from modular_converter.parallel.plans.text_checks import placed
from modular_converter.parallel.proof.on_ranks import RankPool
from modular_converter.parallel.proof.prove import Derived, derive_model, prove
from modular_converter.parallel.solve.derive import from_library
from modular_converter.parallel.source.edit_class import BOM, set_dictionary
from modular_converter.parallel.tiny.target import ModelingFile
from modular_converter.settings.layout import models_folder_of
from modular_converter.settings.load import load_settings


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


@dataclass(frozen=True)
class SourceChange:
    """A file and its new text; ``old`` is None for a new file."""

    path: str
    old: str | None
    new: str


def changes(file: ModelingFile, settings: Sequence[Setting], convert: bool = True) -> list[SourceChange]:
    """The changes of files that give the classes their settings; edited files come before generated files.

    Args:
        convert: whether to include the generated files of the modular file.

    Raises ``WriteError`` if a class is defined elsewhere, cannot be edited, or the edited modular file does not
    convert.
    """
    texts: dict[str, str] = {}
    for setting in settings:
        if setting.is_current:
            continue
        path = _source_of(file, setting)
        texts[path] = set_dictionary(
            texts.get(path) or _read(path), setting.owner.__name__, setting.attribute, setting.entries
        )
    found = [SourceChange(path, _read(path), text) for path, text in texts.items()]
    if file.modular and convert:
        found += _generated(file.modular, texts.get(file.modular) or _read(file.modular))
    return [change for change in found if change.old != change.new]


def write_changes(found: Sequence[SourceChange]) -> None:
    """Write the changes, each file atomically and none outside its folder.

    Raises ``WriteError`` if a file belongs to an installed package or cannot be written.
    """
    for change in found:
        refuse_installed(change.path)
        try:
            write_atomically(change.path, change.new, os.path.dirname(change.path))
        except ConversionError as error:
            raise WriteError("\n".join(map(str, error.findings))) from error


def refuse_installed(path: str) -> None:
    """Raise ``WriteError`` for a file of an installed package."""
    if is_installed(path):
        raise WriteError(f"{path}: it belongs to an installed package; give the file of a checkout, or --json FILE")


def heirs(file: ModelingFile, found: Sequence[SourceChange]) -> list[str]:
    """The other modular files of the models folder that import from a changed file, sorted."""
    changed = {change.path for change in found}
    settings = load_settings(os.path.dirname(file.path))
    library = Library(settings)
    everything = discover([models_folder_of(file.path, settings)], None).paths
    return [
        path for path in everything if path != file.modular and not changed.isdisjoint(required_files(path, library))
    ]


def _source_of(file: ModelingFile, setting: Setting) -> str:
    """The file to edit for a class: the modular file if the class is generated, else the class's own file."""
    name = setting.owner.__name__
    place = os.path.realpath(sys.modules[setting.owner.__module__].__file__ or "")
    folder = os.path.realpath(os.path.dirname(file.path))
    if os.path.dirname(place) != folder:
        raise WriteError(
            f"{name}.{setting.attribute}: the class is defined in {_shown(place)}, which other models use as well; "
            f"write the plan there, or give this model a configuration class of its own"
        )
    path = os.path.join(os.path.dirname(file.path), os.path.basename(place))
    if file.modular:
        if name in _classes(_read(file.modular)):
            return file.modular
        if not os.path.isfile(path) or is_generated(_read(path)):
            raise WriteError(
                f"{name}.{setting.attribute}: {_shown(file.modular)} does not define {name}, it comes from a "
                f"neighbour; add a class {name} that inherits from the neighbour's, then write again"
            )
    return path


def _classes(text: str) -> set[str]:
    return {node.name for node in ast.parse(text.removeprefix(BOM)).body if isinstance(node, ast.ClassDef)}


def _generated(modular: str, text: str) -> Iterator[SourceChange]:
    conversion = convert_source(text.removeprefix(BOM), modular)
    errors = [str(finding) for finding in conversion.findings if finding.is_error]
    if errors:
        raise WriteError(f"{_shown(modular)}: with the plan it cannot be converted\n  " + "\n  ".join(errors))
    for path, made in conversion.files.items():
        yield SourceChange(path, _read(path) if os.path.isfile(path) else None, made)


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", newline="") as file:
            return file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise WriteError(f"{_shown(path)}: it cannot be read ({error})") from error


def _shown(path: str) -> str:
    return os.path.relpath(path)
