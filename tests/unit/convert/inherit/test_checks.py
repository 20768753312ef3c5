"""What inheritance does and one class cannot: refused or told at its line, and nothing else."""

from __future__ import annotations

import textwrap

import pytest

from modular_converter.convert.inherit.build import merge_class
from modular_converter.facts import Surroundings
from modular_converter.findings import locate
from tests.unit.convert.inherit.merging import NAMES, SETTINGS, class_text, findings, merged


def told(child: str, parent: str, bases: str = "nn.Module") -> list[tuple[str, int]]:
    return [(code, line) for code, line, _ in findings(child, parent, bases)]


USES = {
    "a value": ("def f(self):\n    return super().f", "def f(self): pass", [("MC302", 3)]),
    "a value that the parent does not have": ("def f(self):\n    return super().f", "a = 1", []),
    "an attribute of the parent": ("def f(self):\n    return super().a", "a = 1", [("MC302", 3)]),
    "a call of another method": ("def f(self):\n    return super().g()", "def g(self): pass", [("MC302", 3)]),
    "super as a value": ("def f(self):\n    return wrap(super())", "a = 1", [("MC206", 3)]),
    "the attribute of super": ("def f(self):\n    return super().other.more", "a = 1", []),
    "the parent": ("def f(self):\n    return OldMLP", "a = 1", [("MC206", 3)]),
    "the parent in a text": ("def f(self):\n    return 'OldMLP'", "a = 1", []),
    "another class that is called alike": ("def f(self):\n    return OldMLP2, self.OldMLP", "a = 1", []),
    "an attribute of the parent for one of the child": ("a = OldMLP.a", "a = []", []),
    "a constant of the parent": ("def f(self):\n    return OldMLP.a.bit_length()", "a = 1", []),
    "a list that is read": ("def f(self):\n    return OldMLP.a[0]", "a = []", [("MC206", 3)]),
    "a list that is changed": ("def f(self):\n    OldMLP.a.append(1)", "a = []", [("MC206", 3)]),
    "a list that is given away": ("def f(self):\n    return OldMLP.a", "a = []", [("MC206", 3)]),
    "a method by the parent's name": ("def f(self):\n    return OldMLP.g(self)", "def g(self): pass", []),
    "a getter by the parent's name": (
        "def f(self):\n    return OldMLP.g.fget(self)",
        "@property\ndef g(self): pass",
        [],
    ),
    "a static method": ("def f(self):\n    return OldMLP.g()", "@staticmethod\ndef g(): pass", []),
    "a class method that changes its class": (
        "def f(self):\n    return OldMLP.g()",
        "@classmethod\ndef g(cls):\n    cls.a = 1",
        [("MC206", 3)],
    ),
    "a class within the parent": ("class Meta(OldMLP.Meta):\n    b = 1", "class Meta:\n    a = 1", []),
    "the parent in annotations": ("def f(self, x: OldMLP) -> list[OldMLP]:\n    y: OldMLP = x", "a = 1", []),
    "the parent asked for": ("def f(self, x):\n    return isinstance(x, OldMLP)", "a = 1", [("MC206", 3)]),
}


@pytest.mark.parametrize(("child", "parent", "expected"), USES.values(), ids=USES)
def test_uses_of_the_parent(child: str, parent: str, expected: list[tuple[str, int]]) -> None:
    assert told(child, parent) == expected


PLAIN = "def f(self): ..."
ACCESSOR = f"@property\n{PLAIN}"
CURES = {
    "an attribute of the class": ("g = [OldMLP.f for _ in (1,)]", PLAIN, "Write what you take from `OldMLP.f` out"),
    "super in a method": (f"{PLAIN[:-3]}return wrap(super())", PLAIN, "Call `super().f(…)` in a statement of its own"),
    "super in another method": ("def g(self): wrap(super())", PLAIN, "Write what you take from `OldMLP` out"),
    "super in a getter": (f"{ACCESSOR[:-3]}return wrap(super())", ACCESSOR, "Write what you take from `OldMLP` out"),
    "the class alone": ("def g(self, x): return isinstance(x, OldMLP)", PLAIN, "Use `NewMLP` in its place"),
}


@pytest.mark.parametrize(("child", "parent", "cure"), CURES.values(), ids=CURES)
def test_the_cure_is_one_that_the_member_can_have(child: str, parent: str, cure: str) -> None:
    [found] = [one.finding for one in merged(child, parent).findings]
    assert found.code == "MC206" and (found.help or "").startswith(cure)


APART = {
    "equality without a hash": ("def __eq__(self, x): ...", "def __hash__(self): ...", "object", None),
    "equality without a hash of two names": (
        "def __eq__(self, x): ...",
        "__hash__ = key = id",
        "object",
        ("MC208", 1),
    ),
    "equality with a hash": ("def __eq__(self, x): ...\n__hash__ = None", "def __hash__(self): ...", "object", None),
    "equality that extends": (
        "def __eq__(self, x):\n    return super().__eq__(x)",
        "def __hash__(self): ...\ndef __eq__(self, x): ...",
        "object",
        None,
    ),
    "equality alone": ("def __eq__(self, x): ...", "a = 1", "object", None),
    "a deleted name of both": ("a = 1\ndel a", "a = 2", "object", ("MC208", 3)),
    "a deleted name of its own": ("b = 1\ndel b", "a = 2", "object", None),
    "the parent by its name": ("a = 1", "def f(self):\n    return NewMLP.a", "object", ("MC206", 1)),
    "the parent by its name, for what stays": ("b = 1", "def f(self):\n    return NewMLP.a\na = 1", "object", None),
    "a method of the parent by its name": (
        "def g(): ...",
        "def f(self):\n    return NewMLP.g()",
        "object",
        ("MC206", 1),
    ),
    "another class of that attribute": ("a = 1", "def f(self):\n    return NewMLP.b, Other.a", "object", None),
    "the parent by its name in what goes": (
        "a = 1\ndef f(self): ...",
        "def f(self):\n    return NewMLP.a",
        "object",
        None,
    ),
    "private names of one class": (
        "def f(self):\n    return self.__a",
        "def g(self):\n    return self.__b",
        "X",
        None,
    ),
    "a private name of both": (
        "def f(self):\n    self.__a = 1",
        "def g(self):\n    return self.__a",
        "X",
        None,
    ),
    "dunder names of both": ("def __a__(self): ...", "def __a__(self): ...", "X", None),
    "slots": ("__slots__ = ()", "a = 1", "X", ("MC208", 1)),
    "slots of the parent": ("a = 1", "__slots__ = ()", "object", ("MC208", 1)),
    "slots of both": ("__slots__ = ()", "__slots__ = (*NAMES,)", "", ("MC208", 1)),
}


@pytest.mark.parametrize(("child", "parent", "bases", "found"), APART.values(), ids=APART)
def test_what_python_keeps_apart(child: str, parent: str, bases: str, found: tuple[str, int] | None) -> None:
    assert told(child, parent, bases) == ([found] if found else [])


CLASS_NAMES = {
    "an attribute": ("b = max(1, 2)", "max = 3", ["MC209"]),
    "a method": ("b = max(1, 2)", "def max(self): ...", ["MC209"]),
    "a default": ("def f(self, x=max): ...", "max = 3", ["MC209"]),
    "a decorator": ("@max\ndef f(self): ...", "max = 3", ["MC209"]),
    "a body": ("def f(self): return max", "max = 3", []),
    "its own": ("max = 4\nb = max", "max = 3", []),
    "its own, too late": ("b = max\nmax = 4", "max = 3", ["MC209"]),
    "nobody's": ("b = other", "other = 3", []),  # with inheritance it is undefined
    "an attribute of another name": ("b = max.max", "min = 3", []),
}


@pytest.mark.parametrize(("child", "parent", "codes"), CLASS_NAMES.values(), ids=CLASS_NAMES)
def test_names_of_the_module_that_the_parents_class_binds(child: str, parent: str, codes: list[str]) -> None:
    assert [code for code, _ in told(child, parent)] == codes


HALVES = {
    "an annotation": ("a = 1", "a: int = 2", ["MC323"]),
    "an annotation that is kept": ("a: int = 1", "a: int = 2", []),
    "no annotation": ("a = 1", "a = 2", []),
    "one of two names": ("b = a = 1", "a: int = 2", ["MC323"]),
    "a removal": ("a = AttributeError()", "a: int = 2", []),
    "a getter beside a setter": ("@property\ndef a(self): ...", "{}", ["MC323"]),
    "a getter with a setter": ("@property\ndef a(self): ...\n@a.setter\ndef a(self, x): ...", "{}", []),
    "a getter without decorators": ("def a(self): ...", "{}", ["MC323", "MC335"]),
    "a method": ("@other\ndef a(self): ...", "{}", []),
    "another getter": ("@property\ndef b(self): ...", "{}", []),
    "a getter beside a deleter": (
        "@property\ndef a(self): ...\n@a.setter\ndef a(self, x): ...",
        "{}\n@a.deleter\ndef a(self): ...",
        ["MC323"],
    ),
}
ACCESSORS = "@property\ndef a(self): ...\n@a.setter\ndef a(self, x): ..."


@pytest.mark.parametrize(("child", "parent", "codes"), HALVES.values(), ids=HALVES)
def test_halves(child: str, parent: str, codes: list[str]) -> None:
    assert [code for code, _ in told(child, parent.format(ACCESSORS))] == codes


def among(
    child_bases: str, parent_bases: str, child: str, parent: str, siblings: dict[str, str], above: dict[str, str]
) -> list[tuple[str, int, int]]:
    """The findings of a class beside others of the modular file."""
    text = class_text(f"class NewMLP({child_bases}):", child)
    texts = {name: class_text(f"class {name}:", body) for name, body in siblings.items()}
    found = merge_class(
        text,
        class_text(f"class NewMLP({parent_bases}):", parent),
        "NewMLP",
        "OldMLP",
        NAMES,
        SETTINGS,
        Surroundings(
            ancestors={name: frozenset(bases.split()) for name, bases in above.items()},
            siblings=texts,
            in_front={base: (texts.get(base),) for base in child_bases.partition("OldMLP")[0].split(", ")[:-1]},
        ),
    ).findings
    places = [(one.finding, locate("modular", one.node, text)) for one in found]
    return [(one.code, place.line, place.column) for one, place in places]


F, A, G = "def f(self): ...", "a = 1", "def f(self):\n    super().f()"
MIXINS = {
    "behind the parent": ("OldMLP, Mixin", "nn.Module", "b = 2", F, {"Mixin": F}, []),
    "a method of both": ("Mixin, OldMLP", "nn.Module", "b = 2", F, {"Mixin": G}, [("MC207", 1, 14)]),
    "given by the mixin": ("Mixin, OldMLP", "nn.Module", "b = 2", F, {"Mixin": F}, []),
    "a second one": ("First, Mixin, OldMLP", "X", "b = 2", F, {"First": A, "Mixin": G}, [("MC207", 1, 21)]),
    "an attribute of both": ("Mixin, OldMLP", "nn.Module", "b = 2", A, {"Mixin": A}, []),
    "what the class has itself": ("Mixin, OldMLP", "nn.Module", F, F, {"Mixin": F}, []),
    "what the class extends": (
        "Mixin, OldMLP",
        "X",
        G,
        F,
        {"Mixin": G},
        [("MC207", 1, 14)],
    ),
    "nothing of both": ("Mixin, OldMLP", "nn.Module", "b = 2", F, {"Mixin": A}, []),
    "from elsewhere": ("Mixin, OldMLP", "nn.Module", "b = 2", A, {}, [("MC207", 1, 14)]),
    "from elsewhere, and of the parent": ("Mixin, OldMLP", "Mixin", "b = 2", A, {}, []),
    "from elsewhere, in place of one": ("NewBase, OldMLP", "OldBase", "b = 2", A, {}, []),
    "an attribute, in place of one": ("NewBase, OldMLP", "OldBase", "b = 2", A, {"NewBase": A}, [("MC207", 1, 14)]),
    "a method, in place of one": ("OldBase, OldMLP", "OldBase", "b = 2", F, {"OldBase": F}, [("MC207", 1, 14)]),
    "an attribute of the same base": ("OldBase, OldMLP", "OldBase", "b = 2", A, {"OldBase": A}, []),
}


@pytest.mark.parametrize(
    ("child_bases", "parent_bases", "child", "parent", "siblings", "expected"), MIXINS.values(), ids=MIXINS
)
def test_bases_before_the_parent(
    child_bases: str, parent_bases: str, child: str, parent: str, siblings: dict[str, str], expected: list[object]
) -> None:
    assert among(child_bases, parent_bases, child, parent, siblings, {}) == expected


LOST = [("MC207", 1, 22)]
REPLACED = {
    "an unrelated base": ("NewBase", "OldBase", "", LOST),
    "an heir": ("NewBase", "OldBase", "OldBase", []),
    "no common ending": ("NewThing", "OldBase", "", []),
    "bases of all models": ("NewPreTrainedModel", "OldPreTrainedModel", "", []),
    "a base of all models for another": ("NewPreTrainedModel", "AnyModel", "", LOST),
    "the same base": ("NewBase", "NewBase, OldBase", "", []),
    "another base for that of all models": ("NewModel", "OldPreTrainedModel", "", LOST),
}


@pytest.mark.parametrize(("base", "parent_bases", "above", "expected"), REPLACED.values(), ids=REPLACED)
def test_bases_that_are_replaced(base: str, parent_bases: str, above: str, expected: list[object]) -> None:
    found = among(f"OldMLP, {base}", parent_bases, "b = 2", "a = 1", {base: "c = 3"}, {base: above})
    assert found == expected
    assert among(f"OldMLP, {base}", parent_bases, "b = 2", "a = 1", {}, {base: above}) == []  # from elsewhere


KINDS = {
    "a coroutine that is awaited": ("async def f(self):\n    await super().f()", "async def f(self): ...", []),
    "a coroutine that is not awaited": (
        "async def f(self):\n    super().f()",
        "async def f(self): ...",
        [("MC204", 3)],
    ),
    "a plain method that is awaited": (
        "async def f(self):\n    await super().f()",
        "def f(self): ...",
        [("MC204", 3)],
    ),
    "a plain method in a coroutine": ("async def f(self):\n    return super().f()", "def f(self):\n    return 1", []),
    "a generator that is returned": ("def f(self):\n    return super().f()", "def f(self):\n    yield 1", []),
    "a generator with a line above": (
        "def f(self):\n    a = 1\n    return super().f()",
        "def f(self):\n    yield 1",
        [("MC204", 4)],
    ),
    "a generator with a line below": (
        "def f(self):\n    super().f()\n    a = 1",
        "def f(self):\n    yield from x",
        [("MC204", 3)],
    ),
    "a yield in an inner function": (
        "def f(self):\n    super().f()",
        "def f(self):\n    def g():\n        yield 1",
        [],
    ),
    "a generator around a generator": (
        "def f(self):\n    yield 0\n    return super().f()",
        "def f(self):\n    yield 1",
        [("MC204", 4)],
    ),
    "the names around a call": (
        "def f(self):\n    super().f()",
        "def f(self):\n    self.a = locals()",
        [("MC211", 3)],
    ),
    "the names of an object": ("def f(self):\n    super().f()", "def f(self):\n    self.a = vars(self), dir(x)", []),
    "the names of nothing": (
        "def f(self):\n    a = dir()\n    super().f()",
        "def f(self):\n    self.a = 1",
        [("MC211", 4)],
    ),
    "a method called eval": ("def f(self):\n    super().f()", "def f(self):\n    self.eval('x')", []),
    "without a call of super": ("def f(self):\n    yield locals()", "async def f(self):\n    return 1", []),
}


@pytest.mark.parametrize(("child", "parent", "found"), KINDS.values(), ids=KINDS)
def test_bodies_that_take_each_others_place(child: str, parent: str, found: list[tuple[str, int]]) -> None:
    assert told(child, parent) == found


# The child's lines above its `super()` statement, the parent's lines, and whether that is refused: a local name that is
# bound by assignments alone is renamed.
CAPTURES = {
    "a variable": ("apply = 1", "apply()", False),
    "a variable of several": ("x, (apply, *y) = z", "apply()", False),
    "an import": ("from x import y as apply", "apply()", True),
    "a module": ("import apply.fast", "apply.slow()", True),
    "a function": ("def apply(): ...", "apply()", True),
    "a class": ("class apply: ...", "apply()", True),
    "a loop": ("for apply in x: ...", "apply()", False),
    "a context": ("with x as apply: ...", "apply()", False),
    "an exception": ("try: ...\nexcept E as apply: ...", "apply()", False),
    "a pattern": ("match x:\n    case [1, *apply]: ...", "apply()", False),
    "an expression": ("if (apply := x): ...", "apply()", False),
    "an expression in a comprehension": ("y = [(apply := z) for z in x]", "apply()", False),
    "an annotation": ("apply: int", "apply()", False),
    "a removal": ("del apply", "apply()", False),
    "an attribute": ("self.apply = 1", "apply()", False),
    "an item": ("apply['k'] = 1", "apply()", False),
    "a parameter of a lambda": ("self.g = lambda apply: apply", "apply()", False),
    "a variable of a comprehension": ("y = [apply for apply in x]", "apply()", False),
    "a variable of a function": ("def g():\n    apply = 1\nself.g = g", "apply()", False),
    "a read in a function": ("apply = 1", "self.g = lambda: apply()", False),
    "a read in a class": ("apply = 1", "class A:\n    a = apply", False),
    "a default": ("apply = 1", "self.g = lambda x=apply: x", False),
    "a parameter of a lambda of the parent": ("apply = 1", "self.g = lambda apply: apply", False),
    "a parameter of a lambda, and a read": ("apply = 1", "self.g = (lambda apply: apply), apply", False),
    "a variable of a comprehension of the parent": ("apply = 1", "self.g = [apply for apply in x]", False),
    "a variable of a comprehension, and a read": ("apply = 1", "self.g = [apply for apply in x], apply", False),
    "an attribute of the parent": ("apply = 1", "self.g = x.apply", False),
    "what is left of an assignment": ("apply = 1", "self.g = self.h = apply()", False),
    "global in both": ("global apply\napply = 1", "apply()", False),
    "global in the child alone": ("global apply\napply = 1", "apply = 2", True),
    "global in the parent alone": ("apply = 2", "global apply\napply = 1", False),
    "global in an inner function": ("def g():\n    global other\n    other = 1\nself.g = g", "other = 2", False),
}


@pytest.mark.parametrize(("child", "parent", "is_refused"), CAPTURES.values(), ids=CAPTURES)
def test_names_of_a_module_that_are_local_in_the_other_method(child: str, parent: str, is_refused: bool) -> None:
    above, lines = (textwrap.indent(text, "    ") for text in (child, parent))
    merged = told(f"def f(self, x):\n{above}\n    super().f(x)\n    self.h = 1", f"def f(self, x):\n{lines}")
    assert merged[:1] == ([("MC211", child.count("\n") + 4)] if is_refused else [])


@pytest.mark.parametrize(
    ("child", "parent", "codes"),
    [
        ("def f(self, apply=1):\n    super().f()", "def f(self):\n    apply()", ["MC211"]),
        ("def f(self, apply=1):\n    super().f(apply)", "def f(self, apply):\n    apply()", []),
        ("def f(self):\n    super().f()\n    apply = 1", "def f(self):\n    apply = 2", []),
        ("def f(self):\n    super().f()\n    self.b = 2\n    apply = 1", "def f(self):\n    self.b = apply()", []),
        ("def f(self):\n    super().f()\n    self.a = max", "def f(self):\n    max: int", ["MC211"]),
    ],
)
def test_names_of_parameters_and_of_lines_that_go(child: str, parent: str, codes: list[str]) -> None:
    assert [code for code, _ in told(child, parent)] == codes
