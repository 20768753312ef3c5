"""Arguments of a replaced `super()` call: what the findings advise makes one class do what two do."""

from __future__ import annotations

import re
from typing import Any

import pytest

from modular_converter.convert.inherit.build import merge_class
from tests.unit.convert.inherit.merging import NAMES, SETTINGS, child_text, class_text, findings, merge, merged


def value(text: str, call: str) -> Any:
    """What a call on `self`, an instance of the class `NewMLP`, gives."""
    scope: dict[str, Any] = {}
    exec(text, scope)
    scope["self"] = scope["NewMLP"]()
    return eval(f"self.{call}", scope)


def cures(child: str, parent: str) -> list[str]:
    """What the warnings advise."""
    told = [finding.finding for finding in merged(child, parent, bases="object").findings]
    assert {one.code for one in told} == {"MC315"}
    return [one.help for one in told]


IGNORED = {
    "a constant beside more keywords": ("q, k, x=1, **kw", "q, k, **kw", "kw = dict(x=1, **kw)"),
    "two that read others": ("x, x", "q, k", "q = x|k = x"),
    "two that are exchanged": ("k, q", "q, k", "q, k = k, q"),
    "one that reads another": ("q * 2, q", "q, k", "q, k = q * 2, q"),
    "one for a parameter that the child lacks": ("k, 1, q", "q, k, scale", "q, k, scale = k, 1, q"),
    "one that reads another in a comprehension": ("k, [q for _ in 'a']", "q, k", "q, k = k, [q for _ in 'a']"),
    "more keywords and what they read": ("k, 1, x=q, **kw", "q, k, **kw", "q, k, kw = k, 1, dict(x=q, **kw)"),
}


@pytest.mark.parametrize(("passed", "cured", "assignments"), IGNORED.values(), ids=IGNORED)
def test_the_advised_assignments_make_the_arguments_count(passed: str, cured: str, assignments: str) -> None:
    last = "**kw" if "kw" in passed else "scale=2"
    parent = f"def f(self, q, k, {last}):\n    return q, k, {last.strip('*').partition('=')[0]}"
    start = "def f(self, q, k, x, **kw):\n"
    child = f"{start}    return super().f({passed})"
    helps = cures(child, parent)
    found = [re.search("Write `(.*)` above the call, and pass (.*)[.]", help) for help in helps]
    assert {match[1] for match in found if match} == {*assignments.split("|")}
    assert {name.strip("`") for match in found if match for name in match[2].split(", ")} <= {*cured.split(", ")}
    above = "".join(f"    {line}\n" for line in assignments.split("|"))
    cured_text = merge(f"{start}{above}    return super().f({cured})", parent, bases="object")
    wanted = value(class_text("class OldMLP:", parent) + child_text(child), "f(3, 4, 5, y=6)")
    assert value(cured_text, "f(3, 4, 5, y=6)") == wanted


@pytest.mark.parametrize("passed", ["abs(q), k, **kw", "q, [None], **kw", "q, k, x=-x, **kw", "abs(k), k + q, **kw"])
@pytest.mark.parametrize("behind", ["", "    self.seen = q, k, kw\n"], ids=["unread", "read behind the call"])
def test_arguments_that_are_no_names_reach_the_parents_lines(passed: str, behind: str) -> None:
    parent = "def f(self, q, k, **kw):\n    self.given = q, k, kw"
    child = f"def f(self, q, k, x, **kw):\n    super().f({passed})\n{behind}"
    above = class_text("class NewMLP(object):", parent)
    merged_class = merge_class(child_text(child), above, "NewMLP", "OldMLP", NAMES, SETTINGS)
    assert not merged_class.findings
    assert behind == "" or "__inherited_f" in merged_class.text
    wanted = value(class_text("class OldMLP:", parent) + child_text(child), "f(-3, 4, 5, y=6) or vars(self)")
    assert wanted == value(merged_class.text, "f(-3, 4, 5, y=6) or vars(self)")


def test_a_function_that_calls_what_it_replaces_stays_apart() -> None:
    child = child_text("def f(self, q):\n    return super().f(lambda: q() + 1)")
    parent = "def f(self, q):\n    return q()"
    text = merge_class(child, class_text("class NewMLP:", parent), "NewMLP", "OldMLP", NAMES, SETTINGS).text
    assert value(text, "f(lambda: 2)") == 3


SURPLUS = {
    "one by position": ("x, 1", "def f(self, x):", ["1"]),
    "one by keyword": ("x, y=2", "def f(self, x):", ["2"]),
    "the instance": ("self, x", "def f(self, x):", []),
    "more behind the instance": ("self, x, 1, 3, y=2", "def f(self, x):", ["1", "3", "2"]),
    "by position, and all are taken": ("x, 1", "def f(self, *x):", []),
    "by keyword, and all are taken": ("x, y=2", "def f(self, x, **z):", []),
    "unpacked": ("*x, **{}", "def f(self, *x):", []),
    "a decorator may take them": ("x, 1", "@deprecated('y')\ndef f(self, x):", []),
    "none for a static method": ("x, 1", "@staticmethod\ndef f(x):", ["1"]),
}


@pytest.mark.parametrize(("passed", "header", "expected"), SURPLUS.values(), ids=SURPLUS)
def test_arguments_that_the_parent_does_not_take_are_told(passed: str, header: str, expected: list[str]) -> None:
    told = messages(f"def f(self, x):\n    super().f({passed})", f"{header}\n    return x")
    assert [message.split("`")[1] for message in told if "is dropped" in message] == expected


def messages(child: str, parent: str) -> list[str]:
    return [one.finding.message for one in merged(child, parent, bases="object").findings]


NOT_PASSED = {
    "neither": ("x", "*args **kwargs"),
    "no keywords": ("x, *args", "**kwargs"),
    "no positional arguments": ("x, **kwargs", "*args"),
    "both": ("x, *args, **kwargs", ""),
}


@pytest.mark.parametrize(("passed", "missing"), NOT_PASSED.values(), ids=NOT_PASSED)
def test_further_arguments_that_are_not_passed_on(passed: str, missing: str) -> None:
    parent = "def f(self, x, *args, **kwargs):\n    return x, args, kwargs"
    child = f"def f(self, x, *args, **kwargs):\n    return super().f({passed})"
    told = [message for code, _, message in findings(child, parent, "object") if "does not pass" in message]
    assert [re.findall("`(.*?)`", message)[0] for message in told] == missing.split()
    if missing:
        assert [one.split("`")[1] for one in cures(child, parent)] == missing.split()


def test_further_arguments_of_another_name_are_not_passed_on() -> None:
    parent = "def f(self, x, *args, **kwargs):\n    return x, args, kwargs"
    child = "def f(self, x, *more, **others):\n    return super().f(x)"
    assert value(merge(child, parent, bases="object"), "f(1, 2, y=3)") == (1, (), {})


@pytest.mark.parametrize("passed", ["4", "scale=4", ""])
def test_an_argument_for_the_call_of_a_base_above_the_lines_of_the_child_is_told(passed: str) -> None:
    parent = "def __init__(self, scale=2):\n    super().__init__(scale)"
    child = f"def __init__(self, scale=3):\n    self.early = 1\n    super().__init__({passed})"
    assert [code for code, _, _ in findings(child, parent)] == ["MC315"]


PASSED_ON = "def f(self, *args, **kwargs):\n    super().f(*args, **kwargs)\n    self.ready = True"


@pytest.mark.parametrize(
    ("child", "parent", "header"),
    [
        (PASSED_ON, "def f(self, a, b=2, **kw):\n    self.a = a, b, kw", "def f(self, a, b=2, **kw):"),
        (PASSED_ON, "def f(this, a, /, *b, c=1):\n    this.a = a, b, c", "def f(self, a, /, *b, c=1):"),
        (PASSED_ON, "def f(self):\n    self.a = 1", "def f(self):"),
        (PASSED_ON.replace("*args, **kwargs)", "*a, **k)"), "def f(self, a):\n    self.a = a", "def f(self, a):"),
        (
            PASSED_ON.replace("self, ", "self, c, "),
            "def f(self, a, b=2):\n    self.a = a, b",
            "def f(self, c, a, b=2):",
        ),
        (
            PASSED_ON.replace("args, **kwargs):", "args, c=1, **kwargs):"),
            "def f(self, a, *, b=2):\n    self.a = a, b",
            "def f(self, a, *, c=1, b=2):",
        ),
        (
            PASSED_ON.replace("f(*args,", "f(1, *args, c=4,"),
            "def f(self, x, a=0, *, c, **kw):\n    self.a = x, a, c, kw",
            "def f(self, a=0, **kw):",
        ),
    ],
)
def test_a_method_that_only_passes_its_arguments_on_has_the_parents_parameters(
    child: str, parent: str, header: str
) -> None:
    merged = merge(child, parent)
    assert header in merged and "args" not in merged and merged.rstrip().endswith("self.ready = True")


@pytest.mark.parametrize(
    ("child", "parent"),
    [
        (PASSED_ON.replace("True", "args"), "def f(self, a):\n    self.a = a"),
        (PASSED_ON.replace("True", "a"), "def f(self, a):\n    self.a = a"),  # the name of the module
        (PASSED_ON.replace("self, ", "self, a, "), "def f(self, b, a):\n    self.a = b, a"),  # one name for two
        (PASSED_ON.replace("self, ", "self, c=1, "), "def f(self, a):\n    self.a = a"),  # none may follow a default
    ],
)
def test_arguments_that_are_used_otherwise_are_not_passed_on(child: str, parent: str) -> None:
    assert "MC210" in [code for code, *_ in findings(child, parent)]
