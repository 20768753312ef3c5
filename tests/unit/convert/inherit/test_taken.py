"""Where the lines of a merged class were taken from: each piece is found in the class that it names, at its lines."""

from __future__ import annotations

import pytest

from modular_converter.convert.inherit.taken import TakenLines
from tests.unit.convert.inherit.merging import child_text, class_text, merge, merged


PARENT = '''\
# above the docstring
"""Doc of the parent."""

# above width
width: int = 1
"""Doc of width."""

# above depth
depth = 2
"""Doc of depth."""
other = 3

def f(self):
    return 1  # one

# above g
@wrap
def g(self):
    return 2
    # below g
'''
CHILDREN = {
    "nothing": "pass",
    "an attribute": "width: int = 8",
    "an attribute with a text above": "x = 1\n\n# mine\nwidth: int = 8",
    "an attribute with its own words": '# mine\nwidth: int = 8\n# of it\n"""Mine."""\n\n# another\nown = 1\n"""Own."""',
    "a docstring": '# first\n"""Mine."""\n\nown = 1',
    "a docstring further down": 'own = 1\n\n"""Mine,\nat the end."""',
    "a method": "# mine\n@other\ndef f(self):\n    return 9\n\n\n# new\ndef h(self):\n    # h\n    return 3\n",
    "a method and an attribute": "@own\ndef g(self):\n    return 9\n\ndepth = 3",
}


def places(child: str) -> list[tuple[list[str], list[str]]]:
    """The lines of each piece but the header, and those that it was taken from."""
    result = merged(child, PARENT)
    texts = {True: child_text(child), False: class_text("class NewMLP(nn.Module):", PARENT)}
    lines, found, done = result.text.split("\n")[:-1], [], 0
    for piece in result.pieces:
        own, first, last = piece.taken[0]
        found.append((lines[done : done + piece.lines], texts[own].split("\n")[first - 1 : last]))
        done += piece.lines
    assert done == len(lines), "the pieces leave out no line"
    return [one for one in found if not one[0][0].startswith("class ")]


@pytest.mark.parametrize("child", CHILDREN.values(), ids=CHILDREN)
def test_each_piece_is_where_it_says(child: str) -> None:
    for piece, source in places(child):
        assert piece == source


def test_a_removal_is_taken_from_its_stub() -> None:
    child = "x = 1\n\ndef f(self):\n    raise AttributeError('gone')"
    parent = "def f(self):\n    return 1\ng = f"
    assert "del f" in merge(child, parent)
    piece = next(one for one in merged(child, parent).pieces if one.taken == (TakenLines(True, 4, 5),))
    assert piece.lines == 1


def test_the_statements_of_a_merged_method() -> None:
    child = "def f(self):\n    a = 1\n    super().f()\n    self.b = 2\n    return self"
    (piece,) = (
        one
        for one in merged(
            child, "def f(self):\n    self.b = 1\n    @wrap\n    def c(): ...\n    self.d = (\n        3\n    )"
        ).pieces
        if one.statements
    )
    assert piece.statements == (
        TakenLines(True, 3, 3),
        TakenLines(True, 5, 5),
        TakenLines(False, 4, 5),
        TakenLines(False, 6, 8),
        TakenLines(True, 6, 6),
    )
    assert piece.taken == (TakenLines(True, 2, 6), TakenLines(False, 2, 8))
