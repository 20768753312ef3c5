"""Write plans into the source of a model, each proven in the form that the library reads.

They go into its modular file if there is one, else into the files of its classes: a dictionary is set in a class,
``base_model_tp_plan = {...}``, and the rest of the text is kept unchanged.
"""

from __future__ import annotations

import ast
import io
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import libcst as cst
import libcst.matchers as m
import torch
from libcst.metadata import ExpressionContext, ExpressionContextProvider, MetadataWrapper, PositionProvider

from modular_converter.api import convert_source
from modular_converter.convert.schedule import required_files
from modular_converter.convert.source.library import Library
from modular_converter.files.arguments import discover
from modular_converter.files.read import is_installed
from modular_converter.files.write import is_generated, write_atomically
from modular_converter.findings import ConversionError
from modular_converter.parallel.errors import PlanError, WriteError
from modular_converter.parallel.plans.class_settings import HEAD_PLAN, Setting, base_settings, gathered_plan, holding
from modular_converter.parallel.plans.emit import inexpressible_for_library, to_library
from modular_converter.parallel.plans.text_checks import placed
from modular_converter.parallel.proof.on_ranks import RankPool
from modular_converter.parallel.proof.prove import Derived, derive_model, prove
from modular_converter.parallel.solve.derive import from_library
from modular_converter.parallel.tiny.target import ModelingFile
from modular_converter.settings.load import load_settings
from modular_converter.settings.values import models_folder_of


BOM = "\ufeff"
"""The byte order mark that some editors put before the text of a file; it is kept."""


def set_dictionary(text: str, class_name: str, attribute: str, entries: Mapping[str, str]) -> str:
    """The text in which the class ``class_name`` sets ``attribute`` to ``entries``.

    Lines of unchanged entries keep their comments; new lines follow the same entries as in ``entries``. A new attribute
    goes below the plain attributes at the top of the class.

    Raises ``WriteError`` if there is no such class, or the present value cannot be edited, such as a computed value.
    """
    if text.startswith(BOM):
        return BOM + set_dictionary(text.removeprefix(BOM), class_name, attribute, entries)
    wrapper = MetadataWrapper(cst.parse_module(text), unsafe_skip_copy=True)
    module = wrapper.module
    found = [node for node in module.body if isinstance(node, cst.ClassDef) and node.name.value == class_name]
    if len(found) != 1:
        state = "defined twice" if found else "no class of this name stands at the top level"
        raise WriteError(f"{class_name}: {state}")
    statement = _statement(wrapper, found[0], attribute)
    made = cst.parse_expression(_rendered(entries, module.default_newline), module.config_for_parsing)
    if statement is None:
        new = cst.Assign([cst.AssignTarget(cst.Name(attribute))], made)
        return _code(module, found[0], _with_statement(found[0], new))
    value = statement.value
    if value is None:
        return _code(module, statement, statement.with_changes(value=made))
    line, literal = wrapper.resolve(PositionProvider)[value].start.line, module.code_for_node(value)
    if entries and _has_one_entry_a_line(literal):
        made = cst.parse_expression(_edited(literal, entries), module.config_for_parsing)
    elif not _is_literal(literal) or m.findall(value, m.Comment()):
        state = "has comments and several entries on a line" if _is_literal(literal) else "is computed"
        raise WriteError(
            f"{class_name}.{attribute}: line {line}: its value {state}; write it as a dictionary with one entry a line "
            "first"
        )
    return _code(module, value, made)


def _code(module: cst.Module, old: cst.CSTNode, new: cst.CSTNode) -> str:
    changed = module.deep_replace(old, new)
    assert isinstance(changed, cst.Module)
    return changed.code


def _statement(wrapper: MetadataWrapper, node: cst.ClassDef, attribute: str) -> cst.Assign | cst.AnnAssign | None:
    """The only assignment of the attribute, a plain statement of the class; None if there is none. Raises ``WriteError``."""
    places, contexts = wrapper.resolve(PositionProvider), wrapper.resolve(ExpressionContextProvider)
    name, plain = m.Name(attribute), m.Assign(targets=[m.AssignTarget(m.Name(attribute))])
    found: list[cst.Assign | cst.AnnAssign] = []
    lines: list[int] = []
    for one in _statements(node):
        line = places[one].start.line
        if isinstance(one, (cst.Assign, cst.AnnAssign)) and m.matches(one, plain | m.AnnAssign(target=name)):
            found.append(one)
            lines.append(line)
        elif not isinstance(one, (cst.FunctionDef, cst.ClassDef)) and any(
            contexts.get(use) in (ExpressionContext.STORE, ExpressionContext.DEL) for use in m.findall(one, name)
        ):
            raise WriteError(f"{node.name.value}.{attribute}: line {line}: it is set by more than a plain assignment")
    if len(found) > 1:
        raise WriteError(f"{node.name.value}.{attribute}: lines {lines[0]} and {lines[1]}: it is set twice")
    return found[0] if found else None


def _statements(node: cst.ClassDef) -> Iterator[cst.CSTNode]:
    for one in node.body.body:
        yield from one.body if isinstance(one, cst.SimpleStatementLine) else (one,)


def _rendered(entries: Mapping[str, str], newline: str) -> str:
    """A dictionary as text: on one line if it has at most one short entry, else one entry a line."""
    items = [f'"{key}": "{style}"' for key, style in entries.items()]
    if len(items) < 2 and sum(map(len, items)) < 76:
        return "{" + ", ".join(items) + "}"
    return newline.join(["{", *(f"    {item}," for item in items), "}"])


def _with_statement(node: cst.ClassDef, new: cst.Assign) -> cst.ClassDef:
    """The class with a new statement, below its docstring and plain attributes, or in place of its ``pass``."""
    suite = node.body
    block = suite if isinstance(suite, cst.IndentedBlock) else cst.IndentedBlock(())
    lines = list(block.body)
    if isinstance(suite, cst.SimpleStatementSuite):  # ``class C: pass``
        lines = [cst.SimpleStatementLine(suite.body, trailing_whitespace=suite.trailing_whitespace)]
    string = m.Expr(m.SimpleString() | m.ConcatenatedString())
    at = int(m.matches(lines[0], m.SimpleStatementLine([string, m.ZeroOrMore()])))
    stand_in = m.SimpleStatementLine([m.Pass() | m.Expr(m.Ellipsis())])
    if len(lines) == at + 1 and m.matches(lines[at], stand_in):
        lines[at] = lines[at].with_changes(body=[new])
    else:
        above = getattr(lines[at], "leading_lines", ()) if at and at < len(lines) else ()
        plain = m.SimpleStatementLine([m.Assign(), m.ZeroOrMore()])
        first = at
        while block is suite and at < len(lines) and m.matches(lines[at], plain):
            at += 1
        apart = at == first and above and above[0].comment is None  # with a blank line, as below the docstring
        blank = [cst.EmptyLine(indent=False)] if apart else []
        lines.insert(at, cst.SimpleStatementLine([new], leading_lines=blank))
    return node.with_changes(body=block.with_changes(body=lines))


def _is_literal(text: str) -> bool:
    try:
        ast.literal_eval(text)
    except ValueError:
        return text == "AttributeError()"
    return True


def _pairs(literal: str) -> list[tuple[ast.Constant, ast.Constant]]:
    """The entries of a dictionary with string keys and constant values; empty for other expressions."""
    value = ast.parse(literal, mode="eval").body
    pairs = list(zip(value.keys, value.values)) if isinstance(value, ast.Dict) else []
    found = [(k, v) for k, v in pairs if isinstance(k, ast.Constant) and isinstance(v, ast.Constant)]
    return found if len(found) == len(pairs) and all(isinstance(key.value, str) for key, _ in found) else []


def _has_one_entry_a_line(literal: str) -> bool:
    """Whether a dictionary of strings has each entry, and its closing brace, on a line of its own."""
    lines = list(io.StringIO(literal, newline=""))
    starts = [0, *(key.lineno for key, _ in _pairs(literal)), len(lines)]
    rising = all(before < after for before, after in zip(starts[1:], starts[2:]))
    alone = all(
        not lines[key.lineno - 1].encode()[: key.col_offset].strip() and key.lineno == style.end_lineno
        for key, style in _pairs(literal)
    )
    return len(starts) > 2 and rising and alone and lines[-1].strip() == "}"


def _edited(literal: str, entries: Mapping[str, str]) -> str:
    """A dictionary with single entries replaced, removed and added; a key that is there twice gets one value."""
    lines = [part.encode() for part in io.StringIO(literal, newline="")]
    pairs = _pairs(literal)
    first, last = pairs[0][0], pairs[-1][0]
    margin = lines[first.lineno - 1][: first.col_offset].decode()
    newline = "\r\n" if lines[0].endswith(b"\r\n") else "\n"
    present = {str(key.value): key.lineno for key, _ in pairs}
    added: dict[int, str] = {}
    place = first.lineno - 1
    for name, style in entries.items():
        place = present.get(name, place)
        if name not in present:
            added[place] = added.get(place, "") + f'{margin}"{name}": "{style}",{newline}'
    for key, value in pairs:
        number, start, end = key.lineno - 1, value.col_offset, value.end_col_offset
        text, comma = lines[number], b","
        if key is not last or not added or text[end:].lstrip().startswith(b","):
            comma = b""
        style = entries.get(str(key.value), "")
        kept = text[start:end] if value.value == style else f'"{style}"'.encode()
        lines[number] = text[:start] + kept + comma + text[end:] if style else b""
    return "".join(added.get(number, "") + text.decode() for number, text in enumerate(lines))


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
    if not entries:
        raise WriteError(f"{name}: nothing of it can be sharded, so there is no plan to write")
    own = base_settings(derived.small.model, entries)
    refused = _refusal(derived, own, entries, pool)
    if refused:
        raise WriteError(f"{name}: {refused}; --unverified writes the plan all the same")
    lines = [f"{name}: {_state(pool)}"]
    for head in heads:
        setting, failed = _head_setting(head, own, pool)
        own += [setting] if setting is not None else []
        lines.append(f"{head.model_class.__name__}: {failed or _state(pool)}")
        if failed and without != entries:
            say(f"{lines[-1]}; the vocabulary stays whole for it")
            return _family_settings(derived, without, heads, pool, say)
    for line in lines:
        say(line)
    return own


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
