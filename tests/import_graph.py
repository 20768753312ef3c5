"""Who imports whom: every import of a package's files, wherever in a file it stands, and the circles among them."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path

import networkx


class ImportGraph:
    """The imports of one package.

    Imports inside functions count, since they too make one file need the other, and so do those for type checkers:
    whoever reads one file has to know the other.
    """

    def __init__(self, folder: Path) -> None:
        self.files: Mapping[str, Path] = {_dotted(path, folder.parent): path for path in sorted(folder.rglob("*.py"))}
        self.root = folder.name

    @cached_property
    def _imports(self) -> dict[str, set[str]]:
        return {name: set(_imported(path)) for name, path in self.files.items()}

    @cached_property
    def graph(self) -> networkx.DiGraph:
        """An edge from each file to each that it imports. Both are read on demand, and not to collect the tests."""
        edges = ((name, self._file(dotted)) for name, imported in self._imports.items() for dotted in imported)
        return networkx.DiGraph((name, other) for name, other in edges if other not in ("", name))

    def foreign(self, name: str) -> set[str]:
        """The other packages that a file imports from."""
        return {dotted.partition(".")[0] for dotted in self._imports[name]} - {self.root}

    def _file(self, dotted: str) -> str:
        """The file of a module, or the file that defines a name; "" for other packages."""
        name = dotted
        while name and name not in self.files:
            package = f"{name}.__init__"
            if package in self.files:
                return package
            name = name.rpartition(".")[0]
        return name

    def circles(self) -> list[set[str]]:
        """Files that need each other."""
        return _circles(self.graph)

    def parents(self) -> list[str]:
        """The packages that hold other packages, the outermost first."""
        packages = {name.rpartition(".")[0] for name in self.files}
        return sorted({above for name in packages if (above := name.rpartition(".")[0])} | {self.root})

    def children(self, package: str) -> set[str]:
        """The files and packages that stand directly in a package."""
        inside = (name.removeprefix(f"{package}.") for name in self.files if name.startswith(f"{package}."))
        return {name.partition(".")[0] for name in inside}

    def between_children(self, package: str) -> networkx.DiGraph:
        """Which of the files and packages directly in a package import which others; each edge tells its files."""
        children = networkx.DiGraph()
        for edge in self.graph.edges:
            if all(name.startswith(f"{package}.") for name in edge):
                one, other = (name.removeprefix(f"{package}.").partition(".")[0] for name in edge)
                if one != other:
                    children.add_edge(one, other, files=edge)
        return children

    def circles_between_children(self, package: str) -> list[set[str]]:
        """Files and packages directly in a package that need each other."""
        return _circles(self.between_children(package))


def _imported(path: Path) -> Iterator[str]:
    """The imports of a file: dotted modules, and dotted names in modules."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}:{node.lineno}: relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _circles(graph: networkx.DiGraph) -> list[set[str]]:
    found = (circle for circle in networkx.strongly_connected_components(graph) if len(circle) > 1)
    return sorted(found, key=sorted)


def _dotted(path: Path, above: Path) -> str:
    return ".".join(path.relative_to(above).with_suffix("").parts)
