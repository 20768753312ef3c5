"""Overrides: signatures, `super()` bodies, calls on a base, and the blocks that they are cut into."""

from __future__ import annotations

import textwrap

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from modular_converter.convert.inherit.base_calls import call_super_for_bases
from modular_converter.convert.inherit.blocks import parse_block
from modular_converter.convert.inherit.signature import merge_signature
from modular_converter.convert.inherit.super_calls import merge_method
from modular_converter.settings.load import profile_settings


def signature(child: str, parent: str) -> str:
    return merge_signature(parse_block(f"{child}\n    pass\n"), parse_block(f"{parent}\n    pass\n")).strip()


@pytest.mark.parametrize(
    ("child", "parent", "merged"),
    [
        ("def f(self, x):", "def f(self, y):", "def f(self, x):"),
        ("def f(self):", "def f(self) -> int:", "def f(self) -> int:"),
        ("def f(self) -> str:", "def f(self) -> int:", "def f(self) -> str:"),
        ("def f(self, **super_kwargs):", "def f(self, x: int = 1, *y, z=2):", "def f(self, x: int = 1, *y, z=2):"),
        (
            "def f(self, x=2, w=3, **super_kwargs):",
            "def f(self, x=1, y=1, **kw):",
            "def f(self, x=2, y=1, w=3, **kw):",
        ),
        ("def f(self, z=2, **super_kwargs):", "def f(self, x, *, z=1) -> int:", "def f(self, x, *, z=2,) -> int:"),
        ("def f(self, x: str = 'a:)', **super_kwargs):", "def f(self, x, /, y):", None),
        ("def f(self):  # says: nothing", "def f(self) -> int:", "def f(self) -> int:  # says: nothing"),
    ],
)
def test_signature(child: str, parent: str, merged: str | None) -> None:
    found = signature(child, parent)
    compile(found + "\n    pass", "signature", "exec")
    assert merged is None or found == merged


def merge(child: str, parent: str) -> str:
    """The merged method, both written without their indentation."""
    parts = [
        parse_block("class C:\n" + textwrap.indent(textwrap.dedent(text), "    ")).parts[0] for text in (child, parent)
    ]
    return textwrap.dedent(merge_method(parts[0], parts[1], [], {}, profile_settings()).text)


def test_statements_before_and_behind() -> None:
    child = "def f(self):\n    a = 1\n    super().f()\n    b = 2\n"
    assert merge(child, "def f(self):\n    x = 0\n") == "def f(self):\n    a = 1\n    x = 0\n    b = 2\n"


def test_assignment_in_place_removal_and_no_repetition() -> None:
    parent = "def f(self):\n    self.a = 1\n    self.b: int = 2\n    go(1)\n    self.c = 3\n"
    child = "def f(self):\n    super().f()\n    self.a = 9\n    del self.b\n    go( 1 )  # again\n    self.d = 4\n"
    assert merge(child, parent) == "def f(self):\n    self.a = 9\n    go(1)\n    self.c = 3\n    self.d = 4\n"


def test_init_keeps_super_first_and_post_init_last() -> None:
    parent = "def __init__(self):\n    super().__init__()\n    self.post_init()\n"
    child = "def __init__(self):\n    early = 1\n    super().__init__()\n    self.late = early\n"
    body = "    super().__init__()\n    early = 1\n    self.late = early\n    self.post_init()\n"
    assert merge(child, parent) == f"def __init__(self):\n{body}"


def test_a_method_without_super_is_its_own() -> None:
    assert merge("def f(self):\n    return 1\n", 'def f(self):\n    """Doc."""\n') == (
        'def f(self):\n    """Doc."""\n    return 1\n'
    )


@pytest.mark.parametrize(
    ("call", "bases", "expected"),
    [
        ("nn.Module.f(self, x)", ["nn.Module"], "super().f(x)"),
        ("nn.Module.f(self)", ["GradientCheckpointingLayer"], "super().f()"),
        ("PreTrainedModel.f(self, x)", ["NewPreTrainedModel"], "super().f(x)"),
        ("Other.f(self, x)", ["nn.Module"], "Other.f(self, x)"),
        ("nn.Module.g(self, x)", ["nn.Module"], "nn.Module.g(self, x)"),
        ("'é', nn.Module.f(self, x)", ["nn.Module"], "'é', super().f(x)"),
    ],
)
def test_calls_on_a_base(call: str, bases: list[str], expected: str) -> None:
    assert call_super_for_bases(f"    def f(self, x):\n        {call}\n", "f", bases, profile_settings()) == (
        f"    def f(self, x):\n        {expected}\n"
    )


HEADERS = ("class C(A, b.B):\n", "@d\n# between\n@e(1)\nclass C:\n", "def f(\n    x,  # one\n) -> int:\n")
BODIES = (
    '    """Doc."""\n',
    "    # Above.\n    x = 1  # beside\n",
    "\n    a = 1; b = 2\n",
    "    @property\n    def p(self):\n        return 1\n        # footer of p\n",
    "    y = '''\nno indentation\n'''\n",
    "    if x:\n        pass\n    # between\n    else:\n        pass\n",
    "    é = f'{x!r}'\n",
)


@settings(max_examples=100, deadline=None, derandomize=True, database=None)
@given(
    st.sampled_from(HEADERS), st.lists(st.sampled_from(BODIES), min_size=1, max_size=6), st.booleans(), st.booleans()
)
def test_a_block_renders_as_it_was_parsed(header: str, body: list[str], footer: bool, indented: bool) -> None:
    text = header + "".join(body) + "    # footer\n" * footer
    if indented:
        text = "".join("    " + line if line.strip() else line for line in text.splitlines(keepends=True))
    assert parse_block(text).render() == text


def test_an_indented_part_keeps_the_insides_of_strings() -> None:
    (part,) = parse_block('def f():\n    x = """\nin\n"""\n').parts
    assert part.indented(8).text == '        x = """\nin\n"""\n'
    assert part.indented(8).indented(4).text == part.text
