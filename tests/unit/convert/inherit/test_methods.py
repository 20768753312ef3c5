"""Overrides: signatures, `super()` bodies and calls on a base."""

from __future__ import annotations

from textwrap import indent as indented

import pytest

from tests.unit.convert.inherit.merging import findings, merge


def indent(text: str) -> str:
    return indented(text.removesuffix("\n") + "\n", "    ")


def method(child: str, parent: str) -> str:
    """The merged method of a class that has no other; both are written without the indentation of the class."""
    return merge(child, parent).partition(":\n")[2]


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
        ("def f(self, z=2, **super_kwargs):", "def f(self, x, *, z=1) -> int:", "def f(self, x, *, z=2, ) -> int:"),
        ("def f(self, *, x=2, **super_kwargs):", "def f(self, x=1):", "def f(self, x=2, ):"),
        ("def f(self, w=3, **super_kwargs):", "def f(self, x, *y):", "def f(self, x, w=3, *y):"),
        ("def f(self, *z, w=3, **super_kwargs):", "def f(self, x, *y):", "def f(self, x, *z, w=3, ):"),
        ("def f(self, *, w=3, **super_kwargs):", "def f(self, x, *, y):", "def f(self, x, *, y, w=3, ):"),
        ("def f(this, x=2, **super_kwargs):", "def f(self, y):", "def f(this, y, x=2, ):"),
        ("def f(self, x: str = 'a:)', **super_kwargs):", "def f(self, x, /, y=1):", None),
        ("def f(self, x=(a := 3), **super_kwargs):", "def f(self, y=(b := 4)):", None),
        ("def f(self):  # says: nothing", "def f(self) -> int:", "def f(self) -> int:  # says: nothing"),
        (
            "def f(self):",
            "def f(self) -> (\n    int\n    | str\n):",
            "def f(self) -> (\n        int\n        | str\n    ):",
        ),
    ],
)
def test_signature(child: str, parent: str, merged: str | None) -> None:
    found = method(f"{child}\n    pass\n", f"{parent}\n    pass\n")
    compile(f"class C:\n{found}", "signature", "exec")
    assert merged is None or found == f"    {merged}\n        pass\n"


def test_the_own_annotation_of_a_merged_method_stays() -> None:
    child, parent = "def f(self) -> str:\n    return super().f()", "def f(self) -> int:\n    return 1"
    assert method(child, parent) == "    def f(self) -> str:\n        return 1\n"


def test_a_signature_that_python_refuses_is_reported_at_the_override() -> None:
    child, parent = "def f(self, window, **super_kwargs):\n    pass\n", "def f(self, scale=1):\n    pass\n"
    assert [(code, line) for code, line, _ in findings(child, parent)] == [("MC210", 2)]


def test_statements_before_and_behind() -> None:
    child = "def f(self):\n    a = 1\n    super().f()\n    b = 2\n"
    merged = "    def f(self):\n        a = 1\n        x = 0\n        b = 2\n"
    assert method(child, "def f(self):\n    x = 0\n") == merged


def test_comments_at_the_end_of_the_parent_stand_above_what_follows() -> None:
    child = "def f(self):\n    super().f()\n    b = 2\n"
    merged = "    def f(self):\n        x = 0\n        # the end\n        b = 2\n"
    assert method(child, "def f(self):\n    x = 0\n    # the end\n") == merged


def test_assignment_in_place_removal_and_no_repetition() -> None:
    parent = "def f(self):\n    self.a = 1\n    self.b: int = 2\n    if 1:\n        self.c = 3\n"
    child = "def f(self):\n    super().f()\n    self.a = 9\n    del self.b\n    if ( 1 ):\n        self.c = 3  # again\n    self.d = 4\n"
    body = "        self.a = 9\n        if 1:\n            self.c = 3\n        self.d = 4\n"
    assert method(child, parent) == f"    def f(self):\n{body}"


@pytest.mark.parametrize("line", ["go( 1 )", "self.a += 1", "self.a[0].append(2)", "if x:\n        go(1)"])
def test_a_statement_that_is_not_repeated_is_told_where_twice_is_more_than_once(line: str) -> None:
    ((code, place, _),) = findings(f"def f(self, x):\n    super().f(x)\n    {line}", f"def f(self, x):\n    {line}")
    assert (code, place) == ("MC322", 4)


@pytest.mark.parametrize(
    ("call", "told"), [("x", 1), ("x, *args", 1), ("x, **kw", 1), ("x, scale=scale", 0), ("x, *args, scale=scale", 0)]
)
def test_a_parameter_that_is_not_passed_on_is_told(call: str, told: int) -> None:
    child = f"def f(self, x, *args, scale=2, **kw):\n    return super().f({call})"
    found = findings(child, "def f(self, x, *, scale=1):\n    return x * scale")
    assert [(code, line) for code, line, _ in found] == [("MC315", 3)] * told


def test_init_keeps_super_first_and_post_init_last() -> None:
    parent = "def __init__(self):\n    super().__init__()\n    self.post_init()\n"
    child = "def __init__(self):\n    early = 1\n    super().__init__()\n    self.late = early\n"
    body = "        super().__init__()\n        early = 1\n        self.late = early\n        self.post_init()\n"
    assert method(child, parent) == f"    def __init__(self):\n{body}"


def test_a_method_without_super_is_its_own() -> None:
    child, parent = "def f(self):\n    return 1\n", 'def f(self):\n    """Doc."""\n'
    assert method(child, parent) == '    def f(self):\n        """Doc."""\n        return 1\n'


@pytest.mark.parametrize(
    ("call", "bases", "expected"),
    [
        ("nn.Module.f(self, x)", "nn.Module", "super().f(x)"),
        ("nn.Module.f(self)", "GradientCheckpointingLayer", "super().f()"),
        ("PreTrainedModel.f(self, x)", "NewPreTrainedModel", "super().f(x)"),
        ("Other.f(self, x)", "nn.Module", "Other.f(self, x)"),
        ("nn.Module.g(self, x)", "nn.Module", "nn.Module.g(self, x)"),
        ("'é', nn.Module.f(self, x)", "nn.Module", "'é', super().f(x)"),
        ("[nn.Module.f(self, x) for x in xs]", "nn.Module", "[nn.Module.f(self, x) for x in xs]"),
        ("lambda x: nn.Module.f(self, x)", "nn.Module", "lambda x: nn.Module.f(self, x)"),
        ("nn.Module.f(self,  # the module\n            x)", "nn.Module", "super().f(x)"),
    ],
)
def test_calls_on_a_base(call: str, bases: str, expected: str) -> None:
    found = merge(f"def f(self, x):\n    {call}\n", "def f(self, x):\n    pass\n", bases=bases)
    assert found == f"class NewMLP({bases}):\n    def f(self, x):\n        {expected}\n"


def test_calls_on_a_base_with_another_name_for_the_instance_and_none() -> None:
    child = "def f(this, x):\n    return Base.f(this, x)\n\n@staticmethod\ndef g(x):\n    return Base.g(x)\n"
    found = merge(child, "a = 1\n", bases="Base")
    assert "return super().f(x)" in found
    assert "return Base.g(x)" in found


def test_bodies_on_the_line_of_their_def_are_merged():
    child = "def f(self, x): x = x + 1; return super().f(x)"
    merged = method(child, "def f(self, x): y = 2 * x; return y")
    names: dict[str, object] = {}
    exec("class C:\n" + merged, names)
    assert names["C"]().f(3) == 8


@pytest.mark.parametrize(
    ("parent", "child", "merged"),
    [
        ("self.a = 1\nself.b = 2\nself.c = 3", "self.a = self.b = make()", "self.a = self.b = make()\nself.c = 3"),
        ("self.a = 1\nself.c = 3", "self.a = self.b = make()", "self.a = self.b = make()\nself.c = 3"),
        ("self.a = 1\nself.b = 2", "del self.x", "self.a = 1\nself.b = 2"),
        ("self.a = 1\nself.b = 2", "del self.x, self.a", "self.b = 2"),
        ("if a:\n    self.x = 2", "del self.x", "if a:\n    self.x = 2\ndel self.x"),
        ("self.a = 1", "del x.y", "self.a = 1\ndel x.y"),
    ],
)
def test_assignments_of_several_names_and_removals_of_others(parent: str, child: str, merged: str) -> None:
    head = "def f(self, a, x):\n"
    found = method(f"{head}    super().f(a, x)\n{indent(child)}", head + indent(parent))
    assert found == indent(head + indent(merged))
