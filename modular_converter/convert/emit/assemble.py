"""Join the text of each generated file: banner, header, imports, definitions, `__all__`."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterable
from functools import cached_property

from modular_converter.convert.emit.imports import (
    ImportSource,
    OptionalLibraries,
    names_in_annotations,
    render_imports,
)
from modular_converter.convert.inherit.rename_neighbours import Neighbourhood, RenamedNeighbour
from modular_converter.convert.inherit.resolve import is_sibling, neighbour_module
from modular_converter.convert.inline.collect import GeneratedFile, GeneratedFiles
from modular_converter.convert.source.library import Library
from modular_converter.convert.source.rename import folder_name, in_own_terms, with_absolute_imports
from modular_converter.files.write import banner, header
from modular_converter.model import lexer
from modular_converter.model.class_blocks import INDENT, class_node, with_standard_indentation
from modular_converter.model.module import POSTPONED, ImportedName, Module, Role, has_postponed, needs_postponed
from modular_converter.model.nodes import parse
from modular_converter.settings.values import ABSOLUTE, NEIGHBOUR, kind_of, module_name


def assemble(neighbours: Neighbourhood, collection: GeneratedFiles, library: Library) -> dict[str, str]:
    """The texts of the generated files, by file name; not formatted yet."""
    assembler = _Assembler(neighbours, collection, library)
    return {file.name: assembler.text(file) for file in collection.files}


def _indentation(module: Module) -> str:
    """What the body of the first class of a module is indented by; "" where no class has a body below its header."""
    for one in module.statements:
        if one.role is Role.CLASS and "\n" in one.text:
            line = one.text.split("\n")[class_node(one.text).body[0].lineno - 1]
            if indentation := line[: len(line) - len(line.lstrip())]:
                return indentation
    return ""


class _Assembler:
    def __init__(self, neighbours: Neighbourhood, collection: GeneratedFiles, library: Library) -> None:
        self.target = neighbours.target
        self.resolution = neighbours.resolution
        self.settings = library.settings
        self.collection = collection
        self.library = library
        self.banner = banner(self.target.path, self.settings)
        self.foreign = next(
            (one.neighbour.package for one in neighbours.neighbours.values() if one.neighbour.package), ""
        )
        first = next(iter(neighbours.neighbours.values()), None)
        from_neighbour = first.neighbour.module.header if first else ""
        self.header = header(self.target.module.header, from_neighbour, self.settings)
        self.sources = [
            ImportSource(
                in_own_terms(self.target.module, self.library).statements,
                rename=lambda name: name,
                rename_text=lambda text: text,
                skips=self._is_resolved,
            ),
            *(self._imports_of(one) for one in neighbours.neighbours.values()),
        ]

    @cached_property
    def imports_itself_as(self) -> str:
        """The dotted name by which the files import each other; "" for relative imports."""
        folder = os.path.dirname(self.target.path)
        if self.settings.sibling_imports == ABSOLUTE:
            return folder_name(folder, self.library)
        for one in self.resolution.neighbours.values() if self.settings.sibling_imports == NEIGHBOUR else ():
            if one.imports_itself_as and not one.package:
                is_beside = os.path.dirname(one.path) == folder
                above = one.imports_itself_as.rpartition(".")[0]
                return one.imports_itself_as if is_beside else f"{above}.{os.path.basename(folder)}"
            if any(is_sibling(name.module) for name in one.module.imported.values()):
                break
        return ""

    @cached_property
    def importable(self) -> set[str]:
        """Every name that any import of the sources binds."""
        return {
            source.rename(name).bound
            for source in self.sources
            for statement in source.statements
            for name in statement.imports
        }

    def text(self, file: GeneratedFile) -> str:
        definitions = file.ordered
        getattr_text = self._module_getattr(file.kind)
        body = "".join(one.lead + one.text.rstrip("\n") + "\n" for one in definitions) + getattr_text
        used = lexer.identifiers(getattr_text).union(*(definition.uses for definition in definitions))
        names = sorted(file.other_kinds - set(file.definitions))
        imports = render_imports(
            self.sources,
            used | names_in_annotations(body, self.importable - used),
            {definition.name for definition in definitions if not definition.is_store},
            [(f".{module_name(self._kind(name), self.target.model)}", name) for name in names],
            optional=self._optional_libraries() if file.kind in self.settings.optional_kinds else None,
            keep_conditions=self.settings.formatter == "ruff",
        )
        text = with_absolute_imports(imports + body, self.imports_itself_as) + self._all(file.kind)
        return self._indented("".join((self.banner, self.header, self._postponed(text), text)))

    def _indented(self, text: str) -> str:
        """The text with the indentation of the modular file, where no formatter gives it another: that of merged classes
        is four spaces.
        """
        if self.settings.formatter != "none" or (found := _indentation(self.target.module)) in ("", INDENT):
            return text
        return with_standard_indentation(text, found)

    def _postponed(self, text: str) -> str:
        """The import that postpones annotations, where the modular file or a neighbour has it and the text needs it."""
        modules = (self.target.module, *(one.module for one in self.resolution.neighbours.values()))
        if not any(map(has_postponed, modules)) or not needs_postponed(parse(text)):
            return ""
        return f"{POSTPONED}\n" if text.startswith("\n") else f"{POSTPONED}\n\n"

    def _kind(self, name: str) -> str:
        return self.collection.kinds.get(name) or kind_of(name, self.target.cased, self.settings)

    def _home(self, name: str) -> str:
        """The kind of the file that exports a name: by preference the kind that the name itself suggests."""
        kinds = [file.kind for file in self.collection.files if name in file.definitions]
        kind = self._kind(name)
        return kind if kind in kinds or not kinds else kinds[0]

    def _module_getattr(self, kind: str) -> str:
        statement = self.target.module.definitions.get("__getattr__")
        if statement is None or not any(self._kind(name) == kind for name in lexer.classes_in_strings(statement.text)):
            return ""
        return statement.lead + on_one_line(statement.text)

    def _all(self, kind: str) -> str:
        statement = self.target.module.definitions.get("__all__")
        names = [name for name in self.target.module.exported if self._home(name) == kind]
        return statement.lead + render_all(names) if statement and names else ""

    def _optional_libraries(self) -> OptionalLibraries:
        module, _, check = self.settings.availability_check.rpartition(".")
        package = f"{self.settings.package}." if self.foreign else "..."
        return OptionalLibraries(self.settings.optional_libraries, package + module, check)

    def _is_resolved(self, name: ImportedName) -> bool:
        """Whether an imported name is a neighbour's definition that the file contains; a class may also be used
        unchanged.
        """
        is_taken = name.name and name.bound in self.resolution.taken
        if not is_taken or neighbour_module(name.module, self.settings) is None:
            return False
        definition = self.resolution.definition(name.bound)
        return definition is None or definition.role is not Role.CLASS

    def _imports_of(self, renamed: RenamedNeighbour) -> ImportSource:
        return ImportSource(
            renamed.neighbour.module.statements,
            rename=lambda name: self._portable(renamed, name),
            rename_text=renamed.text_in_target,
            skips=lambda name: False,
        )

    def _portable(self, renamed: RenamedNeighbour, name: ImportedName) -> ImportedName:
        """A neighbour's import in the target; a module that the target's folder lacks is imported from the neighbour's."""
        result = renamed.import_in_target(name)
        if not renamed.neighbour.package or not result.is_relative or self._will_exist(result.module):
            return result
        original = ImportedName(f"{renamed.neighbour.package}{name.module}", name.name, name.asname)
        return original if result.bound == name.bound else ImportedName(original.module, name.name, result.bound)

    def _will_exist(self, module: str) -> bool:
        file = module.lstrip(".") + ".py"
        generated = any(file == one.name for one in self.collection.files)
        return generated or self.library.exists(os.path.join(os.path.dirname(self.target.path), file))


def render_all(names: Iterable[str]) -> str:
    """`__all__ = […]` on one line; the formatter breaks it."""
    return "__all__ = [" + ", ".join(f'"{name}"' for name in names) + "]\n"


def on_one_line(text: str) -> str:
    """A statement without its own line breaks and trailing commas; the formatter decides anew."""
    return "\n".join(ast.unparse(node) for node in parse(text).body) + "\n"
