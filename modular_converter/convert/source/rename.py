"""Turn a neighbour's text into the target's: replace names of models in their case, and make imports absolute; rename globals
of a module in code.

The files beside a file may be imported in two ways: `.configuration_x` and `acme.models.x.configuration_x`. A conversion
works with the first; the generated files are written as the library writes its own.
"""

from __future__ import annotations

import ast
import dataclasses
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from modular_converter.convert.source.library import Library, ModelNames
from modular_converter.model import lexer
from modular_converter.model.bindings import FUNCTIONS, Function, ScopeKind, bindings_in, bindings_of
from modular_converter.model.module import Module, Role, Statement
from modular_converter.model.nodes import parse, top_line, walk
from modular_converter.settings.disk import is_below
from modular_converter.settings.values import MODELS


if TYPE_CHECKING:
    import libcst as cst


_PLAIN_LETTERS = frozenset("abcdefghjlmnopqrtuvwxyz")
"""The letters with two forms. `i`, `k` and `s` have more: the Turkish ones, the Kelvin sign, the long s."""
_SPACE = r"(?:[ \t]|\\\n)"
_ABSOLUTE_FROM = re.compile(
    rf"(?:^|[;:]){_SPACE}*from{_SPACE}+(?P<module>[^\W\d][\w.]*){_SPACE}+import\b", re.MULTILINE
)
_IMPORT = re.compile(rf"(?:^|[;:]){_SPACE}*import{_SPACE}+(?P<modules>(?:[\w.,]|{_SPACE})+)", re.MULTILINE)
_LISTED_MODULE = re.compile(rf"(?:^|,){_SPACE}*(?P<module>[^\W\d][\w.]*)")
_RELATIVE_IMPORT = re.compile(r"^[ \t]*from[ \t]+(?P<module>\.[\w.]*)", re.MULTILINE)


@dataclass(frozen=True)
class Renamer:
    """Turns the text of model `old` into that of model `new`; a model has a lowercase and a cased form."""

    old: str
    old_cased: str
    new: str
    new_cased: str
    kept: tuple[str, ...] = ()
    """Third-party names that contain a model's name and are left alone, as whole tokens."""
    copy_comment: str = ""
    """The beginning of a comment that names the origin of a copy; "" if there are none."""
    foreign: frozenset[str] = frozenset()
    """Names that the model's file imports from other libraries, and that contain the model's name: `llama_cpp`."""
    members: frozenset[str] = frozenset()
    """Attributes and keywords of other libraries that are the model's name, which stays a word of texts: `x.clip(0)`."""
    models: tuple[str, ...] = (MODELS,)
    """The names of folders of models."""
    siblings: Renamer | None = None
    """Renames the modules of relative imports, where the files of the target have another name than its copies."""

    @cached_property
    def _forms(self) -> dict[str, str]:
        """Spelling of the old name -> spelling of the new one. A cased form wins over an equal capital form."""
        return {self.old: self.new, self.old.upper(): self.new.upper(), self.old_cased: self.new_cased}

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        first = {form[0].lower() for form in self._forms}
        if first <= _PLAIN_LETTERS and len(first) == 1:  # `re` skips to the first letter, in a quarter of the time
            letter, rest = first.pop(), "|".join(re.escape(form[1:]) for form in self._forms)
            return re.compile(f"[{letter}{letter.upper()}](?<![a-z0-9].)(?i:{rest})")
        return re.compile(f"(?<![a-z0-9])(?i:{'|'.join(map(re.escape, self._forms))})")

    @cached_property
    def _kept_pattern(self) -> re.Pattern[str]:
        # A minus beside a name that itself has a minus belongs to a longer name; in code it is an operator.
        words = (
            rf"(?<![\w-]){re.escape(name)}(?![\w-])" if "-" in name else rf"\b{re.escape(name)}\b"
            for name in sorted(self.kept, key=len, reverse=True)
        )
        return re.compile("|".join(words))

    @cached_property
    def _foreign_pattern(self) -> re.Pattern[str]:
        """The names of other libraries in code, with the attributes that are looked up in them."""
        names, members = (
            "|".join(re.escape(name) for name in sorted(some, key=len, reverse=True))
            for some in (self.foreign, self.members)
        )
        return re.compile(
            rf"(?<![\w.])(?:{names or '(?!)'})\b(?:{_SPACE}*\.{_SPACE}*\w+)*|\b(?:{members or '(?!)'})\b"
        )

    @classmethod
    def between_models(cls, names: ModelNames, old: str, new: str) -> Renamer:
        """The renamer from one lowercase model name to another; the cased forms follow from `names`."""
        return cls(old, names.cased(old), new, names.cased(new))

    def name(self, name: str) -> str:
        """Rename one identifier."""
        return self._renamed[name]

    def names(self, names: Iterable[str]) -> frozenset[str]:
        """Rename some identifiers."""
        return frozenset(map(self._renamed.__getitem__, names))

    def changed(self, names: Collection[str]) -> frozenset[str]:
        """Those of some identifiers that renaming changes. Most hold no name of the model, which takes no pattern."""
        forms = {form.lower() for form in self._forms}
        names = list(names)
        lines = "\n".join((*forms, *names))
        if lines.isascii():  # else other letters may be the same apart from their case
            lowered = lines.lower().split("\n")[len(forms) :]
            names = [name for form in forms for name, low in zip(names, lowered, strict=True) if form in low]
        return frozenset(name for name in names if self.name(name) != name)

    @cached_property
    def _renamed(self) -> _RenamedNames:
        """The identifiers renamed so far: the same ones occur in many definitions."""
        return _RenamedNames(self)

    def is_within_word(self, name: str) -> bool:
        """Whether the model's name stands only within longer words of an identifier: `sam` in `num_samples`."""
        found = self._pattern.finditer(name)
        return all(name[one.end() : one.end() + 1].islower() for one in found)

    def import_modules(self, text: str) -> str:
        """Rename only the relative modules that the import statements of `text` import from."""
        found = (one.span("module") for one in _RELATIVE_IMPORT.finditer(lexer.code_only(text)))
        return lexer.replace_spans(text, ((*span, self.module(text[slice(*span)])) for span in found))

    def module(self, module: str) -> str:
        """Rename a relative module, if it is the model's: neither `...sampling` nor `..llama_pro` is llama's."""
        return self.name(module) if self._is_own(module) else module

    def _is_own(self, module: str) -> bool:
        """Whether a relative module is in the folder of the model."""
        is_above = module.startswith("..") and not is_in_models(module, self.models)
        return not is_above or module.lstrip(".").partition(".")[0] == self.old and not module.startswith("...")

    def code(self, text: str, keep_modules: bool = False) -> str:
        """Rename in code, strings and comments, but not in the text of f-strings nor in absolute module names.

        A comment that names the origin of a copy is dropped, since it is wrong after the renaming.

        Args:
            keep_modules: whether relative module names stay too.
        """
        text = without_copy_comments(text, self.copy_comment)
        if self._pattern.search(text) is None:
            return text
        pieces: list[str] = []
        position = 0
        for start, end, renamer in self._special_spans(text, keep_modules):
            if start < position:
                continue
            special = text[start:end] if renamer is None else renamer.between(text, start, end)
            pieces += (self.between(text, position, start), special)
            position = end
        pieces.append(self.between(text, position, len(text)))
        return "".join(pieces)

    def between(self, text: str, start: int, end: int) -> str:
        """The slice `text[start:end]` renamed; it has no protected spans."""
        pieces: list[str] = []
        position = start
        for match in self._pattern.finditer(text, start, end):
            pieces += (text[position : match.start()], self._replacement(match))
            position = match.end()
        pieces.append(text[position:end])
        return "".join(pieces)

    def _replacement(self, match: re.Match[str]) -> str:
        found = match.group()
        if len(self._forms) == 2 and found.isupper():
            following = match.string[match.end() : match.end() + 1]
            return self.new_cased if following.isalpha() else self.new.upper()
        return self._forms.get(found, self.new_cased)

    def _special_spans(self, text: str, keep_modules: bool) -> list[tuple[int, int, Renamer | None]]:
        """The spans that stay, and those that another renamer renames."""
        spans: list[tuple[int, int]] = []
        modules: list[tuple[int, int]] = []
        if lexer.has_template(text):
            spans += lexer.template_text_spans(text)
        is_foreign = any(name in text for name in (*self.foreign, *self.members))
        if is_foreign or "import" in text:
            code = lexer.code_only(text)
            spans += _absolute_modules(code)
            if is_foreign:
                spans += (match.span() for match in self._foreign_pattern.finditer(code))
            for one in _RELATIVE_IMPORT.finditer(code):
                if not self._is_own(one["module"]):
                    spans.append(one.span("module"))
                elif keep_modules or self.siblings is not None:
                    modules.append(one.span("module"))
        if self.kept and any(name in text for name in self.kept):
            spans += (match.span() for match in self._kept_pattern.finditer(text))
        # Of two spans that begin together the longer one counts.
        special: list[tuple[int, int, Renamer | None]] = [(*span, None) for span in spans]
        special += [(*span, None if keep_modules else self.siblings) for span in modules]
        return sorted(special, key=lambda span: (span[0], -span[1]))


class _RenamedNames(dict[str, str]):
    """Identifiers with their new names, each renamed when it is first looked up."""

    def __init__(self, renamer: Renamer) -> None:
        super().__init__()
        self._renamer = renamer

    def __missing__(self, name: str) -> str:
        of = self._renamer
        stays = name in of.kept or name in of.foreign or name in of.members
        renamed = self[name] = name if stays else of._pattern.sub(of._replacement, name)
        return renamed


def is_in_models(module: str, models: Iterable[str]) -> bool:
    """Whether a dotted module names a folder of models, of which `models` are the names."""
    return not set(module.split(".")).isdisjoint(models)


def _absolute_modules(code: str) -> Iterator[tuple[int, int]]:
    """The places of absolute module names in the imports of a text, whose comments and strings have been removed."""
    yield from absolute_sources(code)
    for match in _IMPORT.finditer(code):
        start, end = match.span("modules")
        # Cut out, so that `^` stands for the beginning of the list.
        listed = _LISTED_MODULE.finditer(code[start:end])
        yield from ((start + module.start("module"), start + module.end("module")) for module in listed)


def absolute_sources(code: str) -> Iterator[tuple[int, int]]:
    """The places of the absolute modules that statements `from … import …` of such a text name."""
    return (match.span("module") for match in _ABSOLUTE_FROM.finditer(code))


def without_copy_comments(text: str, beginning: str) -> str:
    """The text without the comments with this beginning, which name the origin of a copy; "" removes none."""
    if not beginning or beginning not in text:
        return text
    comments = {token.start for token in lexer.tokens(text) if token.kind == "comment"}
    pattern = re.compile(rf"^[ \t]*(?P<mark>#)[ \t]*{re.escape(beginning)}[^\n]*(?:\n|\Z)", re.MULTILINE)
    return pattern.sub(lambda match: "" if match.start("mark") in comments else match[0], text)


class RenamedModule(Mapping[str, Statement]):
    """The definitions of a neighbour under their new names; a text is renamed on first use."""

    def __init__(self, module: Module, renamer: Renamer) -> None:
        self.module = module
        self.renamer = renamer
        self._originals: dict[str, Statement] = {}
        for name, definition in module.definitions.items():
            new = renamer.name(name)
            if new not in self._originals or new not in renamer.names(
                definition.bases
            ):  # else an old name of the first
                self._originals[new] = definition
        self._renamed: dict[str, Statement] = {}
        self._texts: dict[str, str] = {}
        self.order = {name: position for position, name in enumerate(self._originals)}

    def __getitem__(self, name: str) -> Statement:
        renamed = self._renamed.get(name)
        if renamed is None:
            original = self._originals[name]
            # The statement's `uses` are renamed rather than computed anew.
            renamed = self._renamed[name] = dataclasses.replace(
                original,
                name=self.renamer.name(original.name),
                text=self.text(name),
                lead=self.renamer.code(original.lead),
                bases=tuple(self.renamer.name(base) for base in original.bases),
                known_uses=self.renamer.names(original.uses),
                binds=self.renamer.names(original.binds),
            )
        return renamed

    def text(self, name: str) -> str:
        """The text of a definition, without the work on its other parts."""
        text = self._texts.get(name)
        if text is None:
            text = self._texts[name] = self.renamer.code(self._originals[name].text)
        return text

    def __iter__(self) -> Iterator[str]:
        return iter(self._originals)

    def __len__(self) -> int:
        return len(self._originals)

    def __contains__(self, name: object) -> bool:
        return name in self._originals

    def original(self, name: str) -> Statement:
        """The definition in the neighbour's file."""
        return self._originals[name]

    def role(self, name: str) -> Role:
        """The role of a definition, without renaming its text."""
        return self._originals[name].role

    def main_name(self, name: str) -> str:
        """The new name of the definition that binds a name, among others perhaps."""
        return self.renamer.name(self._originals[name].name)

    def is_made(self, name: str) -> bool:
        """Whether a definition binds a name in another way than by an import within a block."""
        found = self._originals.get(name)
        return found is not None and all(self.renamer.name(one.bound) != name for one in found.inner_imports)

    def uses(self, name: str) -> frozenset[str]:
        """The identifiers in a definition, under the new names, without renaming its text."""
        return self.renamer.names(self._originals[name].uses)

    def registered(self, name: str) -> frozenset[str]:
        """The definitions that their decorators enter in one: see `Module.registered`."""
        registered = self.module.registered
        if not registered:
            return frozenset()
        whole = self._originals[name]
        return self.renamer.names(frozenset[str]().union(*(registered.get(one, ()) for one in whole.names_bound)))

    @cached_property
    def lines(self) -> Mapping[str, int]:
        """The position of each definition in the neighbour's file."""
        return {self.renamer.name(name): place for name, place in self.module.places.items()}


def absolute_module(module: str, package: str) -> str:
    """`...activations` in package `transformers.models.llama` -> `transformers.activations`; absolute ones stay."""
    stripped = module.lstrip(".")
    level = len(module) - len(stripped)
    if not level:
        return module
    parts = package.split(".")
    return ".".join([*parts[: len(parts) - level + 1], *([stripped] if stripped else [])])


def absolute_imports(text: str, package: str) -> str:
    """The text of a definition with the relative imports in it made absolute."""
    if "import" not in text:
        return text
    found = _RELATIVE_IMPORT.finditer(lexer.code_only(text))
    return lexer.replace_spans(text, ((*one.span("module"), absolute_module(one["module"], package)) for one in found))


def own_folder_name(module: Module, library: Library) -> str:
    """The dotted name under which a module imports from its own folder: `acme.models.x`; "" if it does not."""
    folder = os.path.dirname(module.path)
    beginning = f".{os.path.basename(folder)}."
    for text in (one.text for one in module.statements if beginning in one.text):
        for start, end in absolute_sources(lexer.code_only(text)):
            dotted = text[start:end].rpartition(".")[0]
            if f".{dotted}.".endswith(beginning) and library.resolver.stem(dotted, folder) == folder:
                return dotted
    return ""


def folder_name(folder: str, library: Library) -> str:
    """The dotted name of a folder in the package of the settings; "" where it lies in no such package."""
    package = library.settings.package
    top = library.find_package(package, folder)
    if top is None or not is_below(folder, top):
        return ""
    return ".".join((package, *os.path.relpath(folder, top).split(os.sep))) if folder != top else package


def with_relative_imports(module: Module, folder_name: str) -> Module:
    """The module with the imports from its own folder, which has this dotted name, as relative ones; "" changes none."""
    if not folder_name:
        return module
    beginning = f"{folder_name}."
    statements = tuple(_relative(one, beginning) if beginning in one.text else one for one in module.statements)
    return replace(module, statements=statements)


def in_own_terms(module: Module, library: Library) -> Module:
    """The module with the imports from its own folder as relative ones."""
    return with_relative_imports(module, own_folder_name(module, library))


def _relative(statement: Statement, beginning: str) -> Statement:
    imports = tuple(
        replace(name, module="." + name.module.removeprefix(beginning))
        if name.name and name.module.startswith(beginning)
        else name
        for name in statement.imports
    )
    found = absolute_sources(lexer.code_only(statement.text))
    own = ((start, start + len(beginning), ".") for start, _ in found if statement.text.startswith(beginning, start))
    return replace(statement, imports=imports, text=lexer.replace_spans(statement.text, own))


def with_absolute_imports(text: str, folder_name: str) -> str:
    """A text with its imports from files beside it as absolute ones; "" changes none."""
    if not folder_name:
        return text
    starts = (match.start("module") for match in _RELATIVE_IMPORT.finditer(lexer.code_only(text)))
    found = ((start, start + 1, f"{folder_name}.") for start in starts if not text.startswith("..", start))
    return lexer.replace_spans(text, found)


def rename_globals(text: str, names: Mapping[str, str]) -> str:
    """The text of a top-level statement with new names for some globals.

    Raises:
        SyntaxError: libcst cannot parse the text, although Python can.
    """
    pattern = pattern_of(names)
    if not pattern.search(text):
        return text
    if not _has_other_meanings(text, names):
        return _rename_words(text, pattern, names)
    # `ast` misplaces names in f-strings before Python 3.12; libcst takes longer to import than most models to convert.
    import libcst as cst
    from libcst.metadata import MetadataWrapper

    bindings = "".join(f"import {name}\n" for name in names)  # so that each name has a binding for its uses to lead to
    try:
        module = cst.parse_module(bindings + text)
    except cst.ParserSyntaxError as error:
        raise SyntaxError(error.message) from None
    wrapper = MetadataWrapper(module, unsafe_skip_copy=True)
    changed = {id(node): names[node.value] for node in _uses(wrapper, names)}
    renamed = wrapper.module.visit(_renamer(changed, names))
    return renamed.code[len(bindings) :]


def rename_imported(text: str, names: Mapping[str, str]) -> str | None:
    """The text of a module that imports some names with other ones, in the imports and in all uses; None where one is
    a parameter, a local name, an attribute of a class or a keyword, too.
    """
    return None if _has_other_meanings(text, names) else _rename_words(text, pattern_of(names), names)


def rename_local(text: str, function: Function, names: Iterable[str]) -> str:
    """The text of a function with `own_x` for some local names `x`. One with another meaning there, too, stays: in the
    header, as a keyword, in an import, as a text (`f"{x=}"`); also where there is an `own_x`.
    """
    lines = text.splitlines(keepends=True)
    kept = lexer.identifiers("".join(lines[: function.body[0].lineno - top_line(function)]))
    for node in walk(*function.body):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            kept |= lexer.identifiers(ast.unparse(node))
        elif isinstance(node, ast.keyword):
            kept |= {node.arg or ""}
        elif isinstance(node, (*FUNCTIONS, ast.ClassDef)):
            kept |= {node.name}  # it is their `__name__`, too
    kept = kept.union(re.findall(r"(\w+)\s*=\s*[!:}]", text))
    kept = kept.union(*(scope.declared_global for scope in bindings_in(function).everywhere))
    there = lexer.identifiers(text)
    renamed = {name: f"own_{name}" for name in names if name not in kept and f"own_{name}" not in there}
    return _rename_words(text, pattern_of(renamed), renamed) if renamed else text


def pattern_of(names: Iterable[str]) -> re.Pattern[str]:
    """The pattern of some names in code, but for attributes."""
    return re.compile(rf"(?<![\w.])(?:{'|'.join(map(re.escape, names))})(?!\w)")


def _has_other_meanings(text: str, names: Mapping[str, str]) -> bool:
    """Whether one of the names is a parameter, a local name, an attribute of a class or a keyword anywhere in a text."""
    tree = parse(text)
    if any(isinstance(node, ast.keyword) and node.arg in names for node in walk(tree)):
        return True
    return any(
        one.kind is not ScopeKind.BLOCK and not one.local.isdisjoint(names) for one in bindings_of(tree).everywhere
    )


def _rename_words(text: str, pattern: re.Pattern[str], names: Mapping[str, str]) -> str:
    """Rename every identifier of that spelling in the code of a text, which takes no scopes."""
    found = pattern.finditer(lexer.code_only(text))
    return lexer.replace_spans(text, ((*match.span(), names[match.group()]) for match in found))


def _uses(wrapper: cst.MetadataWrapper, names: Mapping[str, str]) -> list[cst.Name]:
    """The nodes that read or bind one of the globals."""
    import libcst as cst
    from libcst.metadata import Assignment, ScopeProvider

    scope = wrapper.resolve(ScopeProvider)[wrapper.module]
    assert scope is not None
    found: list[cst.Name] = []
    for name in names:
        for assignment in scope[name]:
            nodes = [access.node for access in assignment.references]
            if isinstance(assignment, Assignment):
                nodes.append(assignment.node)  # type: ignore[arg-type]
            found += [node for node in nodes if isinstance(node, cst.Name) and node.value == name]
    return found


def _renamer(changed: Mapping[int, str], names: Mapping[str, str]) -> cst.CSTTransformer:
    import libcst as cst

    class Renamer(cst.CSTTransformer):
        """Gives the chosen nodes, told by their identity, their new names."""

        def leave_Name(self, original_node: cst.Name, updated_node: cst.Name) -> cst.Name:
            new = changed.get(id(original_node))
            return updated_node.with_changes(value=new) if new else updated_node

        def leave_Global(self, original_node: cst.Global, updated_node: cst.Global) -> cst.Global:
            items = [
                item.with_changes(name=cst.Name(names.get(item.name.value, item.name.value)))
                for item in updated_node.names
            ]
            return updated_node.with_changes(names=items)

    return Renamer()
