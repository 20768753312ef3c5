"""The plan of a merged class: each of its spans is found in the class that it names, at its lines."""

from __future__ import annotations

import pytest

from modular_converter.model.class_blocks import SourceLines
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


def places(child: str) -> list[tuple[str, str]]:
    """The text of each span but the header, and that of its first source."""
    texts = {True: child_text(child), False: class_text("class NewMLP(nn.Module):", PARENT)}
    found = []
    for span in merged(child, PARENT).plan:
        own, first, last = span.sources[0]
        found.append((span.text, "\n".join(texts[own].split("\n")[first - 1 : last]) + "\n"))
    return [one for one in found if not one[0].startswith("class ")]


@pytest.mark.parametrize("child", CHILDREN.values(), ids=CHILDREN)
def test_each_span_is_where_it_says(child: str) -> None:
    for text, source in places(child):
        assert text == source


def test_a_removal_is_made_from_its_stub() -> None:
    child = "x = 1\n\ndef f(self):\n    raise AttributeError('gone')"
    parent = "def f(self):\n    return 1\ng = f"
    assert "del f" in merge(child, parent)
    span = next(one for one in merged(child, parent).plan if one.sources == (SourceLines(True, 4, 5),))
    assert span.text == "    del f\n"


def test_the_statements_of_a_merged_method() -> None:
    child = "def f(self):\n    a = 1\n    # below\n    super().f()\n    self.b = 2\n    # new\n    return self"
    parent = "def f(self) -> int:\n    self.b = 1\n    @wrap\n    def c(): ...\n    # d\n    self.d = (\n        3\n    )\n    # end"
    plan = merged(child, parent).plan[1:]
    assert [(one.text.strip(), one.sources) for one in plan] == [
        ("def f(self) -> int:", (SourceLines(True, 2, 2), SourceLines(False, 2, 2))),
        ("a = 1", (SourceLines(True, 3, 3),)),
        ("self.b = 2", (SourceLines(True, 6, 6),)),
        ("@wrap\n        def c(): ...", (SourceLines(False, 4, 5),)),
        ("# d", (SourceLines(False, 6, 6),)),
        ("self.d = (\n            3\n        )", (SourceLines(False, 7, 9),)),
        ("# end", (SourceLines(False, 10, 10),)),
        ("# new", (SourceLines(True, 7, 7),)),
        ("return self", (SourceLines(True, 8, 8),)),
    ]
