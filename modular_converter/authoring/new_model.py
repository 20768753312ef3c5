"""The first modular file of a new model: each public class of its parents under the name of the new model.

With several parents, the first one gives the plain names (`KiwiModel`), and each other one its own behind them
(`KiwiClipModel`), so that no two copies have one name.
"""

from __future__ import annotations

import ast
import bisect
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from modular_converter.convert.batch import Run
from modular_converter.convert.emit.assemble import render_all
from modular_converter.convert.emit.format import format_files
from modular_converter.convert.inherit.resolve import is_sibling
from modular_converter.convert.source.library import Library, common_suffix, written_name
from modular_converter.convert.source.rename import Renamer, folder_name, own_folder_name, with_absolute_imports
from modular_converter.files.arguments import model_folder
from modular_converter.files.write import without_banner
from modular_converter.findings import UNPARSABLE, Conversion, ConversionError, Location
from modular_converter.model.index import index_module
from modular_converter.model.module import Module
from modular_converter.model.nodes import parse, walk
from modular_converter.rules import input_files
from modular_converter.settings.load import profile_settings
from modular_converter.settings.values import dotted_name, folder_of_model, model_of_modular, modular_name, module_name


_TYPE = re.compile(r"(?m)^    model_type\b[^=\n]*=\s*([\"'])([\w.-]+)\1")
_WEIGHTS = re.compile(r"[\"'`]([\w.-]+/[\w.-]+)[\"'`]")


class ParentModel(NamedTuple):
    """A model that the new one inherits from."""

    model: str
    """Its name, `llama`."""
    folder: str
    dotted: str
    """Its folder as a modular file imports from it: `..llama`, `transformers.models.llama`."""
    cased: str
    """Its name in the names of its classes, `Llama`."""
    modules: Mapping[str, Module]
    """Kind of file -> the file with its configurations, and that with its models."""
    classes: tuple[tuple[str, str], ...]
    """Kind of file and name of each public class that is called after the model, in order."""
    is_elsewhere: bool
    """Whether it is of another package."""


class NewModel(NamedTuple):
    """A model that was not there before."""

    modular: str
    """The place of its modular file."""
    text: str
    conversion: Conversion
    copies: Mapping[str, str]
    """Path -> text of files that no conversion gives, which the generated code imports: the parent's, renamed."""
    init: str | None
    """The text of `__init__.py`; None where that of the parent is missing or cannot be followed."""
    renamer: Renamer
    """Renames the first parent to the new model."""
    classes: Mapping[str, str]
    """Class of the first parent -> the class of the new model."""
    types: Mapping[str, str]
    """`model_type` of a configuration of the first parent -> that of the new model."""


def read_parent(name: str, models: str, library: Library) -> ParentModel:
    """Read a parent, by the name of a model or, in another package, the dotted name of its folder.

    Raises `ConversionError` for a model that does not exist, and for one that has no public class of its own name.
    """
    is_elsewhere = "." in name
    model = name.rpartition(".")[2].replace("-", "_")
    folder = library.resolver.stem(name, models) if is_elsewhere else model_folder(name, models, library.settings)
    if folder is None or not os.path.isdir(folder):
        raise ConversionError(input_files.missing_file(Location(name), reason="there is no such package or folder"))
    conventions = profile_settings() if is_elsewhere else library.settings
    kinds = (conventions.kinds.get(conventions.config_suffix, ""), conventions.default_kind)
    paths = {kind: os.path.join(folder, f"{module_name(kind, model)}.py") for kind in kinds if kind}
    modules = {kind: library.module(path) for kind, path in paths.items() if library.exists(path)}
    defined = [one for module in modules.values() for one in module.classes]
    names = (
        library.names(os.path.dirname(folder)).with_written(model, defined).cased(model),
        written_name(model, defined),
    )
    cased = next((one for one in names if one and any(name.startswith(one) for name in defined)), "")
    init = os.path.join(folder, "__init__.py")
    listed = library.module(init).imported if library.exists(init) else ()
    public = ((kind, one) for kind, module in modules.items() for one in _public(module, listed))
    classes = tuple((kind, one) for kind, one in public if cased and one.startswith(cased))
    if not any(kind == conventions.default_kind for kind, _ in classes):
        file = f"`{module_name(conventions.default_kind, model)}.py`"
        has_file = conventions.default_kind in modules
        reason = f"its file {file} exports no class that is called after {model}" if has_file else f"it has no {file}"
        raise ConversionError(input_files.missing_file(Location(folder), reason=reason))
    by_own_name = (own_folder_name(module, library) for module in modules.values())
    beside = dotted_name(os.path.join(folder, "x.py"), library.settings).removesuffix(".x")
    dotted = name if is_elsewhere else next(filter(None, by_own_name), beside)
    return ParentModel(model, folder, dotted, cased, modules, classes, is_elsewhere)


def _public(module: Module, listed: Collection[str]) -> list[str]:
    """The classes of a file that its `__all__` lists, else those that the package imports, else those that nothing uses."""
    for public in (module.exported, listed):
        if found := [name for name in module.classes if name in public]:
            return found
    used = {name for one in module.statements for name in one.uses - {one.name}}
    return [name for name in module.classes if name not in used]


def new_model(model: str, cased: str, parents: Sequence[ParentModel], models: str, library: Library) -> NewModel:
    """The files of a new model, converted in memory.

    Args:
        model: its name, `kiwi_vl`.
        cased: its name in the names of its classes, `KiwiVL`.
        parents: the models that it inherits from, the most important one first.

    Raises `ConversionError` with the findings, if the modular file does not convert.
    """
    modular = os.path.join(folder_of_model(models, model, library.settings), modular_name(model, library.settings))
    renamers = [Renamer(one.model, one.cased, model, cased, models=library.settings.models_names) for one in parents]
    namings = [renamers[0]]
    for parent, renamer in zip(parents[1:], renamers[1:], strict=True):
        namings.append(replace(renamer, new_cased=cased + _name_behind(parent), siblings=renamer))
    text = _modular_text(list(zip(parents, namings, strict=True)), model, library)
    text = format_files({modular: text}, library.settings).texts[modular]
    conversion, copies = _convert(modular, text, list(zip(parents, namings, strict=True)), library)
    classes = {name: renamers[0].name(name) for _, name in parents[0].classes}
    init = _init(parents[0], {**conversion.files, **copies}, modular, renamers[0], library)
    generated = (index_module(content, path) for path, content in conversion.files.items())
    old, written = _types(parents[0].modules.values()), _types(generated)
    types = {parents[0].model: model} | {
        kind: new for name, kind in old.items() if (new := written.get(classes.get(name, "")))
    }
    return NewModel(modular, text, conversion, copies, init, renamers[0], classes, types)


def _convert(
    modular: str, text: str, parents: Sequence[tuple[ParentModel, Renamer]], library: Library
) -> tuple[Conversion, Mapping[str, str]]:
    """The conversion of a modular file, and the files beside it that its code imports, which are the parents' renamed."""
    copies: dict[str, str] = {}
    model = model_of_modular(modular, library.settings)
    given = {module_name(kind, model) for parent, _ in parents for kind in parent.modules}
    while True:
        (conversion,) = Run(library.settings, {modular: text, **copies}, workers=1).convert([modular])
        files = {**conversion.files, **copies}
        missing = {name for content in files.values() for name in _beside(content)}
        if conversion.failed:  # what the parents' files import may be what is missing
            beside = (_file_name(name, renamer) for parent, renamer in parents for name in _beside_parent(parent))
            missing = {*beside} - given
        missing -= {os.path.basename(path).removesuffix(".py") for path in files}
        found = {name: content for name in sorted(missing) if (content := _copy(name, parents, library)) is not None}
        if not found and conversion.failed:
            raise ConversionError(*conversion.findings)
        if not found:
            return conversion, copies
        new = {os.path.join(os.path.dirname(modular), f"{name}.py"): content for name, content in found.items()}
        copies |= format_files(new, library.settings).texts


def _beside(text: str) -> Iterator[str]:
    """The modules beside a file that it imports from."""
    for node in walk(*parse(text).body):
        if isinstance(node, ast.ImportFrom) and node.level == 1 and node.module:
            yield node.module


def _beside_parent(parent: ParentModel) -> Iterator[str]:
    """The modules beside a parent's files that they import from."""
    for module in parent.modules.values():
        yield from (one.module[1:] for one in module.imported.values() if is_sibling(one.module))


def _copy(name: str, parents: Sequence[tuple[ParentModel, Renamer]], library: Library) -> str | None:
    """The file of a parent that is called so in the new model, renamed; None for none."""
    for parent, renamer in parents:
        for file in sorted(os.listdir(parent.folder)):
            if file.endswith(".py") and _file_name(file.removesuffix(".py"), renamer) == name:
                return renamer.code(library.text(os.path.join(parent.folder, file)))
    return None


def _file_name(name: str, renamer: Renamer) -> str:
    """The name of a parent's file in the new model, where its classes may have the parent's name behind the model's."""
    return (renamer.siblings or renamer).name(name)


def _name_behind(parent: ParentModel) -> str:
    """The name of a further parent behind that of the new model: `Clip`. Its own spelling where the two end alike (`HyV3`
    and `HYV3`), since a conversion would take the end for a part of the class's name.
    """
    name = title(parent.model)
    return parent.cased if common_suffix(name, parent.cased)[:1].isupper() else name


def _types(modules: Iterable[Module]) -> dict[str, str]:
    """Class -> its `model_type`, for the configurations of some files."""
    texts = ((name, module.definitions[name].text) for module in modules for name in module.classes)
    return {name: match[2] for name, text in texts if (match := _TYPE.search(text))}


def _body(model_type: str, old: str, new: str) -> str:
    """The body of an heir: `pass`, or the type of a configuration that renaming would leave to its parent (`blip-2`)."""
    if not model_type or re.search(rf"(?<![a-z0-9]){re.escape(old)}", model_type):
        return "pass"
    parts = r"[\W_]?".join(map(re.escape, re.split(r"_|(?<=[a-z])(?=\d)", old)))
    own = re.sub(r"\W", "_", re.sub(parts, new, model_type, count=1))
    return f'model_type = "{own if own.startswith(new) else new}"'


def title(model: str) -> str:
    """`KiwiVl` of `kiwi_vl`: a cased name whose lowercase form is the model's name again."""
    return "".join(part.title() for part in model.split("_"))


def _modular_text(parents: Sequence[tuple[ParentModel, Renamer]], model: str, library: Library) -> str:
    imports, classes, exported = [], [], []
    for parent, renamer in parents:
        types = _types(parent.modules.values())
        for kind in parent.modules:
            names = [name for other, name in parent.classes if other == kind]
            if names:
                imports.append(f"from {parent.dotted}.{module_name(kind, parent.model)} import {', '.join(names)}\n")
            for name in names:
                new = renamer.name(name)
                classes.append(f"\n\nclass {new}({name}):\n    {_body(types.get(name, ''), parent.model, model)}\n")
                exported.append(new)
    module = next(iter(parents[0][0].modules.values()))
    header = "" if library.settings.license_header else without_banner(module.header, library.settings).strip("\n")
    return f"{header}\n\n{''.join(imports)}{''.join(classes)}\n\n{render_all(exported)}".lstrip("\n")


def _init(
    parent: ParentModel, files: Mapping[str, str], modular: str, renamer: Renamer, library: Library
) -> str | None:
    """The parent's `__init__.py` for the new model, without what only the parent has; None where that is not plain. That of
    another package is no example.
    """
    path = os.path.join(parent.folder, "__init__.py")
    if parent.is_elsewhere:
        return ""
    text = library.text_if_readable(path)
    if text is None or parent.folder == os.path.dirname(modular):
        return None
    dotted = own_folder_name(library.module(path), library)
    renamed = renamer.code(re.sub(rf"(?m)^(\s*from ){re.escape(dotted)}\.", r"\1.", text) if dotted else text)
    defined = {
        os.path.basename(one).removesuffix(".py"): index_module(content, one).names for one, content in files.items()
    }
    try:
        renamed = _without_missing(renamed, defined)
        compile(renamed, path, "exec", dont_inherit=True)
    except UNPARSABLE:
        return None
    own = folder_name(os.path.dirname(modular), library) if dotted else ""
    return with_absolute_imports(renamed, own) if _is_whole(renamed, defined) else None


def _without_missing(text: str, defined: Collection[str]) -> str:
    """The text without the imports from modules of its folder that do not exist."""
    dropped: set[int] = set()
    for node in walk(*parse(text).body):
        if isinstance(node, ast.ImportFrom) and node.level == 1 and node.module and node.module not in defined:
            dropped.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return "\n".join(line for number, line in enumerate(text.split("\n"), 1) if number not in dropped)


def _is_whole(text: str, defined: Mapping[str, Collection[str]]) -> bool:
    """Whether an `__init__.py` imports only what exists, and its `__all__` lists only what it has."""
    module = index_module(text, "__init__.py")
    imported = [name for statement in module.statements for name in statement.imports if name.module.startswith(".")]
    own = (name for name in imported if not name.module.startswith("..") and name.name != "*")
    exists = all(name.name in defined.get(name.module[1:], ()) for name in own)
    has_star = any(name.name == "*" for name in imported)
    return exists and (has_star or set(module.exported) <= {*module.names, *(one.bound for one in imported)})


def names_made_by_renaming(new: NewModel) -> Iterator[str]:
    """The quoted names of published weights in the generated files, which exist for the parent alone."""
    for path, text in new.conversion.files.items():
        for name in dict.fromkeys(_WEIGHTS.findall(text)):
            if new.renamer.new in name.lower():
                yield f"{os.path.basename(path)}: `{name}` comes from renaming; write the name of your weights"


_MADE = re.compile(r"^#.*automatically generated", re.MULTILINE | re.IGNORECASE)


class Table(NamedTuple):
    """A file with tables, and the entries of a new model."""

    path: str
    old: str
    new: str
    is_generated: bool
    """Whether its own head says that a program writes it."""


def table_entries(
    models: str, renamer: Renamer, types: Mapping[str, str], classes: Mapping[str, str], library: Library
) -> Iterator[Table]:
    """Each file with tables in which the parent of a new model stands, with the entries of the new model.

    Tables stand in the `__init__.py` of the folder of models and in the folders that hold no model, such as `auto`. An
    entry is a pair of a name and a class, or a class, in a list or a dictionary, or an import of the parent; it begins
    and ends a line.

    Args:
        renamer: renames the parent to the new model.
        types: `model_type` of the parent -> that of the new model, also of parts such as its vision model.
        classes: class of the parent -> class of the new model.
    """
    folders = (os.path.join(models, name) for name in library.settings.no_models)
    listed = (os.path.join(one, name) for one in folders if os.path.isdir(one) for name in sorted(os.listdir(one)))
    for path in (os.path.join(models, "__init__.py"), *listed):
        if not path.endswith(".py") or not library.exists(path):
            continue
        try:
            text = library.text(path)
            new = with_entries(text, renamer, types, classes)
        except (ConversionError, *UNPARSABLE):
            continue
        if new != text:
            head = text[:2000].partition("\nimport ")[0]
            yield Table(path, text, new, _MADE.search(head) is not None)


def with_entries(text: str, renamer: Renamer, types: Mapping[str, str], classes: Mapping[str, str]) -> str:
    """The text of a file with the entries of a new model; see `table_entries`. Raises what `ast.parse` does for a file that is not Python."""
    lines = text.split("\n")
    added: list[tuple[int, str]] = []
    taken: set[int] = set()
    for nodes in _sequences(text):
        keys = [_key(node) for node in nodes]
        for node, key in zip(nodes, keys, strict=True):
            if (
                key is None
                or not _is_parents(node, key, renamer.old, types, classes)
                or not _has_own_lines(node, lines)
            ):
                continue
            new_key = classes.get(key) or types.get(key) or renamer.name(key)
            if new_key in keys or node.lineno in taken:
                continue
            taken.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))  # the sequences in it come later
            known = [one for one in keys if one is not None]
            is_sorted = known == sorted(known) and len(known) == len(keys)
            place = bisect.bisect(known, new_key) if is_sorted else nodes.index(node) + 1
            line = nodes[place].lineno - 1 if place < len(nodes) else (nodes[-1].end_lineno or 0)
            own = "\n".join(lines[node.lineno - 1 : node.end_lineno])
            added.append((line, _renamed(own.replace(f'"{key}"', f'"{new_key}"'), renamer, classes)))
    added.sort(key=lambda one: one[0])  # stable, so that entries at one line keep their order
    while added:
        line, new = added.pop()
        lines[line:line] = new.split("\n")
    return "\n".join(lines)


def _sequences(text: str) -> Iterator[Sequence[ast.stmt | ast.expr]]:
    """The elements of each list, tuple and dictionary, and the imports that follow each other."""
    for node in walk(*parse(text).body):
        if isinstance(node, (ast.List, ast.Tuple, ast.Set)):
            yield node.elts
        elif isinstance(node, ast.Dict) and None not in node.keys:
            yield [_pair(key, value) for key, value in zip(node.keys, node.values, strict=True) if key]
    bodies = [parse(text).body, *(node.body for node in walk(*parse(text).body) if isinstance(node, ast.If))]
    yield from ([one for one in body if isinstance(one, ast.ImportFrom)] for body in bodies)


def _pair(key: ast.expr, value: ast.expr) -> ast.Tuple:
    """An entry of a dictionary."""
    pair = ast.copy_location(ast.Tuple([key, value], ast.Load()), key)
    pair.end_lineno, pair.end_col_offset = value.end_lineno, value.end_col_offset
    return pair


def _key(node: ast.stmt | ast.expr) -> str | None:
    """What an entry is found by: the first of a pair, a class in quotes, the module of an import."""
    match node:
        case ast.Constant(value=str() as text):
            return text
        case ast.ImportFrom(module=str() as module):
            return module
        case ast.Tuple(elts=[ast.Constant(value=str() as text), _]):
            return text
    return None


def _is_parents(
    node: ast.stmt | ast.expr, key: str, folder: str, types: Mapping[str, str], classes: Mapping[str, str]
) -> bool:
    """Whether an entry is the parent's: its class, a pair of its type with one of its classes, an import of its folder."""
    if isinstance(node, ast.ImportFrom):
        names = {one.name for one in node.names} - {"*"}
        return folder in key.split(".") and names <= classes.keys()
    if isinstance(node, ast.Constant):
        return key in classes
    values = {one.value for one in walk(node) if isinstance(one, ast.Constant)}
    return key in types and not values.isdisjoint(classes)


def _has_own_lines(node: ast.stmt | ast.expr, lines: Sequence[str]) -> bool:
    """Whether nothing else stands on the lines of an entry but the comma behind it."""
    before = lines[node.lineno - 1][: node.col_offset]
    behind = lines[(node.end_lineno or node.lineno) - 1][node.end_col_offset :]
    return not before.strip() and behind.strip() in (("",) if isinstance(node, ast.stmt) else (",",))


def _renamed(own: str, renamer: Renamer, classes: Mapping[str, str]) -> str:
    """The lines of an entry for the new model. A class of the parent that the new model lacks, as a tokenizer, stays."""

    def new(match: re.Match[str]) -> str:
        word = match[0]
        if word in classes:
            return classes[word]
        return word if word.startswith(renamer.old_cased) else renamer.name(word)

    return re.sub(r"\w+", new, own)
