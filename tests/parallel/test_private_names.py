"""Private names of torch and transformers stand in one file each, all are there, and a missing one is told."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest


pytest.importorskip("transformers")
from modular_converter.parallel import torch_private, transformers_private  # noqa: E402
from modular_converter.parallel.private_names import MissingNameError, PrivateNames  # noqa: E402


WING = Path(__file__).parents[2] / "modular_converter" / "parallel"
LIBRARIES = {"torch", "transformers"}
PLACES = torch_private.NAMES.places | transformers_private.NAMES.places
METHODS = {place.removesuffix("()").rpartition(".")[2] for place in PLACES.values() if place.endswith("()")}
OPERATORS = "torch.ops.aten"  # names of operators, which traces have


def private(words: str) -> bool:
    parts = [word for word in words.split(".") if word.startswith("_") and not word.startswith("__")]
    return bool(parts) and not words.startswith(OPERATORS)


def reached(tree: ast.AST) -> Iterator[str]:
    """The private names that are imported from the libraries, or read from their modules, and names of private methods."""
    known: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for one in node.names:
                known[one.asname or one.name.partition(".")[0]] = (
                    one.name if one.asname else one.name.partition(".")[0]
                )
        elif isinstance(node, ast.ImportFrom):
            known |= {one.asname or one.name: f"{node.module}.{one.name}" for one in node.names}
    known = {name: path for name, path in known.items() if path.partition(".")[0] in LIBRARIES}
    yield from (path for path in known.values() if private(path))
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            if node.attr in METHODS:
                yield node.attr
            words = ast.unparse(node)
            first, _, rest = words.partition(".")
            if first in known and private(f"{known[first]}.{rest}"):
                yield f"{known[first]}.{rest}"
        elif isinstance(node, ast.Constant) and node.value in METHODS:
            yield str(node.value)


def test_no_other_file_names_one():
    own = {"torch_private.py", "transformers_private.py"}
    files = [path for path in WING.rglob("*.py") if path.name not in own]
    found = {str(path.relative_to(WING)): list(reached(ast.parse(path.read_text()))) for path in files}
    assert {name: names for name, names in found.items() if names} == {}


@pytest.mark.parametrize("names", [torch_private.NAMES, transformers_private.NAMES], ids=lambda names: names.library)
def test_all_are_there(names):
    for name in names.places:
        names.find(name)  # raises if it is missing; a field of a class may be None
    names.check()


def test_a_missing_name_is_told():
    names = PrivateNames("torch", {"gone": "torch:Tensor._gone", "late": "torch._gone:"})
    with pytest.raises(
        MissingNameError, match=r"^torch 2\S+ has no torch\.Tensor\._gone, which this project uses; install"
    ):
        names.check()
    with pytest.raises(MissingNameError, match=r"has no torch\._gone"):
        names.find("late")
    with pytest.raises(AttributeError, match="torch_private has no unknown"):
        torch_private.unknown  # noqa: B018


def test_a_method_is_that_of_the_first_argument():
    class Own:
        def _get_logits_processor(self, number):
            return number + 1

    assert transformers_private.get_logits_processor(Own(), 2) == 3
    assert transformers_private.NAMES.checked("get_logits_processor") == "_get_logits_processor"
