"""Setting a dictionary in a class: libcst is the oracle that everything outside the attribute keeps its bytes."""

from __future__ import annotations

import ast

import libcst as cst
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modular_converter.parallel.errors import WriteError
from modular_converter.parallel.source import _pairs, set_dictionary


PLAN = {"layers.*.q": "colwise", "layers.*.o": "rowwise"}


def held(text: str, name: str = "C", attribute: str = "plan") -> object:
    """The value that a class sets, read by `ast`."""
    [body] = [node for node in ast.parse(text).body if isinstance(node, ast.ClassDef) and node.name == name]
    [value] = [
        node.value
        for node in body.body
        if isinstance(node, (ast.Assign, ast.AnnAssign))
        and ast.unparse(node).partition(" ")[0].strip(":") == attribute
    ]
    return ast.literal_eval(value)


class Without(cst.CSTTransformer):
    """Takes the attribute out of the class, with the blank lines and comments that libcst counts as its own."""

    def leave_ClassDef(self, original_node, updated_node):
        if original_node.name.value != "C" or isinstance(updated_node.body, cst.SimpleStatementSuite):
            return updated_node
        kept = [one for one in updated_node.body.body if not self.is_plan(one)]
        return updated_node.with_changes(body=updated_node.body.with_changes(body=kept))

    @staticmethod
    def is_plan(node) -> bool:
        if not isinstance(node, cst.SimpleStatementLine) or len(node.body) != 1:
            return False
        [one] = node.body
        if isinstance(one, cst.Assign):
            return one.targets[0].target.value == "plan"
        return isinstance(one, cst.AnnAssign) and one.target.value == "plan"


def outside(text: str) -> str:
    return cst.parse_module(text).visit(Without()).code


@pytest.mark.parametrize(("entries", "style"), [(PLAN, "colwise"), ({"layers.*.o": "rowwise"}, None)])
def test_a_key_that_is_there_twice_gets_one_value(entries, style):
    text = 'class C:\n    plan = {\n        "layers.*.q": "a",  # one\n        "layers.*.q": "b",\n        "layers.*.o": "c",\n    }\n'
    made = set_dictionary(text, "C", "plan", entries)
    assert held(made) == entries and made.count('"layers.*.q"') == (2 if style else 0)


comments = st.sampled_from(["", "  # é, kept", "  #"])
heads = st.lists(st.sampled_from(['model_type = "é"', "keys = [\n        1,\n    ]", "a = b = 1"]), max_size=3)
tails = st.lists(
    st.sampled_from(
        [
            "width: int = 3",
            "def f(self):\n        plan = {}\n        return plan",
            "@property\n    def g(self): ...",
            "x = 1; y = 2",
        ]
    ),
    min_size=1,
    max_size=3,
)
present = st.none() | st.sampled_from(
    [
        "plan = {}",
        "plan = None",
        "plan = AttributeError()",
        'plan: dict[str, str] = {"a": "b"}',
        'plan = {"layers.*.o": "rowwise", "é": "colwise"}',
        'plan = {\n        # the first\n        "é": "colwise",  # why\n        "layers.*.o": "rowwise"\n    }',
        'plan = {\n        "layers.*.o": "colwise",\n        "gone": "colwise",\n\n        # the last\n        "layers.*.q": "colwise",\n    }',
    ]
)
entries = st.dictionaries(
    st.sampled_from(["layers.*.q", "layers.*.o", "é", "new.*"]), st.sampled_from(["colwise", "rowwise"]), min_size=1
)


@st.composite
def classes(draw):
    docstring = draw(st.sampled_from(["", '    """Says é."""\n', '    """Says\n\n    plan = {}\n    """\n\n']))
    lines = [*draw(heads), *([one] if (one := draw(present)) else []), *draw(tails)]
    gaps = [draw(st.sampled_from(["", "\n", "\n    # about it\n"])) for _ in lines]
    body = "".join(f"{gap}    {line}{draw(comments)}\n" for gap, line in zip(gaps, lines))
    before = draw(st.sampled_from(["", "# é\nimport x\n\n\nclass D:\n    plan = {}\n\n\n", "\f\n"]))
    after = draw(st.sampled_from(["", "\n\nplan = {}\n", "\n\nclass E(C):\n    plan = {}"]))
    return f"{before}class C(B):\n{docstring}{body}{after}"


@given(classes(), entries)
def test_everything_outside_the_attribute_is_kept(text, wanted):
    made = set_dictionary(text, "C", "plan", wanted)
    assert held(made) == wanted
    assert outside(made) == outside(text)
    assert set_dictionary(made, "C", "plan", wanted) == made


@given(classes(), entries)
def test_line_breaks_are_kept(text, wanted):
    text = text.replace("\f", "").replace("\n", "\r\n")
    made = set_dictionary(text, "C", "plan", wanted)
    assert "\n" not in made.replace("\r\n", "")
    assert held(made) == wanted


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("class C(B):\n    pass\n", "class C(B):\n    plan = {{\n{}    }}\n"),
        ("class C(B): pass  # yet\n", "class C(B):\n    plan = {{\n{}    }}  # yet\n"),
        ("class C(B): ...", "class C(B):\n    plan = {{\n{}    }}"),
        ("class C(B): x = 1\n", "class C(B):\n    plan = {{\n{}    }}\n    x = 1\n"),
        ('class C(B):\n    """It."""', 'class C(B):\n    """It."""\n    plan = {{\n{}    }}'),
        ('class C(B): "It."\n', 'class C(B):\n    "It."\n    plan = {{\n{}    }}\n'),
        ('class C(B):\n    """It."""\n    pass\n', 'class C(B):\n    """It."""\n    plan = {{\n{}    }}\n'),
        (
            'class C(B):\n    """It."""\n\n    x: int = 1\n',
            'class C(B):\n    """It."""\n\n    plan = {{\n{}    }}\n\n    x: int = 1\n',
        ),
        (
            "class C(B):\n    @property\n    def x(self): ...\n",
            "class C(B):\n    plan = {{\n{}    }}\n    @property\n    def x(self): ...\n",
        ),
    ],
)
def test_where_a_new_attribute_goes(before, after):
    lines = "".join(f'        "{key}": "{style}",\n' for key, style in PLAN.items())
    assert set_dictionary(before, "C", "plan", PLAN) == after.format(lines)


def test_a_tab_stays_a_tab():
    made = set_dictionary("class C:\n\tx = 1\n\n\ty: int = 2\n", "C", "plan", PLAN)
    assert held(made) == PLAN
    assert made.startswith("class C:\n\tx = 1\n\tplan = {\n")


def test_comments_of_entries_that_stay_are_kept():
    text = (
        'class C:\n    plan = {\n        # attention\n        "layers.*.o": "colwise",  # was wrong\n'
        '        "gone": "colwise",  # goes\n        # the end\n    }\n'
    )
    assert set_dictionary(text, "C", "plan", PLAN) == (
        'class C:\n    plan = {\n        # attention\n        "layers.*.q": "colwise",\n'
        '        "layers.*.o": "rowwise",  # was wrong\n        # the end\n    }\n'
    )


def test_one_entry_stands_on_one_line():
    made = set_dictionary("class C:\n    x = 1\n", "C", "_tp_plan", {"lm_head": "colwise_gather_output"})
    assert made == 'class C:\n    x = 1\n    _tp_plan = {"lm_head": "colwise_gather_output"}\n'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("class D:\n    pass\n", "no class of this name"),
        ("class C:\n    pass\n\n\nclass C:\n    pass\n", "defined twice"),
        ("class C:\n    plan = {**OTHER}\n", "line 2: its value is computed"),
        ("class C:\n    plan = OTHER | {}\n", "is computed"),
        ("class C:\n    plan = {}\n    plan = {}\n", "lines 2 and 3: it is set twice"),
        ("class C:\n    if x:\n        plan = {}\n", "more than a plain assignment"),
        ("class C:\n    plan = other = {}\n", "more than a plain assignment"),
        ('class C:\n    plan = {  # why\n        "a": "b", "c": "d"\n    }\n', "has comments"),
    ],
)
def test_what_cannot_be_edited_is_named(text, said):
    with pytest.raises(WriteError, match=said):
        set_dictionary(text, "C", "plan", PLAN)


@pytest.mark.parametrize(
    "literal", ["{'a': b}", "{b: 'a'}", "{1: 'a'}", "{'a': 'b', **c}", "['a']", "{'a': 'b', 'c': d}"]
)
def test_entries_are_read_of_constants_alone(literal):
    assert _pairs(literal) == []
    assert [(k.value, v.value) for k, v in _pairs("{'a': 'b', 'c': None}")] == [("a", "b"), ("c", None)]
