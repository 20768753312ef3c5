"""Classes that Python makes in ways of their own: what differs between one class and two is refused or told."""

from __future__ import annotations

import pytest

from modular_converter.convert.inherit.build import Merged, merge_class
from tests.unit.convert.inherit.merging import NAMES, SETTINGS, class_text


def merged(child: str, parent: str) -> Merged:
    """One class laid over another; each is written as a decorator, its bases, and its body behind `:: `."""
    child_text, parent_text = (class_text(*_parted(text)) for text in (child, parent))
    return merge_class(child_text, parent_text, "NewMLP", "OldMLP", NAMES, SETTINGS)


def _parted(text: str) -> tuple[str, str]:
    header, _, body = text.partition(":: ")
    decorator, _, bases = header.partition(" ") if header.startswith("@") else ("", "", header)
    return f"{decorator}\nclass NewMLP({bases}):".lstrip(), body


def told(child: str, parent: str) -> list[str]:
    """The codes of the findings."""
    return [one.finding.code for one in merged(child, parent).findings]


REFUSED = {
    "a named tuple with methods": ("OldMLP:: def f(self):\n    return self.a", "NamedTuple:: a: int", []),
    "a named tuple that is made otherwise": ("OldMLP:: def __new__(cls): ...", "NamedTuple:: a: int", ["MC208"]),
    "a named tuple with a further field": ("OldMLP:: b: int = 1", "typing.NamedTuple:: a: int", ["MC208"]),
    "a named tuple with an attribute": ("OldMLP:: def f(self):\n    self.b = 1", "NamedTuple:: a: int", ["MC208"]),
    "an attribute of another object": ("OldMLP:: def f(self, x):\n    x.b = 1", "NamedTuple:: a: int", []),
    "a function of a named tuple": ("OldMLP:: @staticmethod\ndef f(): ...", "NamedTuple:: a: int", []),
    "a named tuple with a further base": ("OldMLP, Mixin:: pass", "NamedTuple:: a: int", ["MC208"]),
    "a method above a named tuple": (
        "OldMLP:: def __repr__(self):\n    return super().__repr__()",
        "NamedTuple:: a: int",
        ["MC208", "MC301"],
    ),
    "no named tuple": ("OldMLP:: def __new__(cls): ...\nb: int = 1", "Tuple:: a: int", []),
    "a protocol's heir": ("OldMLP:: pass", "Protocol[T]:: def f(self): ...", ["MC208"]),
    "a protocol's heir that is one": ("OldMLP, Protocol:: pass", "Protocol:: def f(self): ...", []),
    "fields of both": ("OldMLP, total=False:: b: int", "TypedDict:: a: int", ["MC208"]),
    "fields of the child alone": ("OldMLP, total=False:: b: int", "TypedDict:: x = 1", []),
    "fields that are all written again": ("OldMLP, total=False:: a: int", "TypedDict:: a: int", []),
    "fields of the parent alone": ("OldMLP:: pass", "TypedDict, total=False:: a: int", []),
    "fields of the child below a partial parent": ("OldMLP:: b: int", "TypedDict, total=False:: a: int", []),
    "whole ones below a partial parent": ("OldMLP, total=True:: b: int", "TypedDict, total=False:: a: int", ["MC208"]),
    "two partial ones": ("OldMLP, total=False:: b: int", "TypedDict, total=False:: a: int", []),
    "two whole ones": ("OldMLP, total=True:: b: int", "TypedDict:: a: int", []),
    "a look at the classes above": ("OldMLP:: def f(self):\n    return type(self).__mro__", "Root:: a = 1", ["MC206"]),
    "a call of mro": ("OldMLP:: def f(self):\n    return type(self).mro()", "Root:: a = 1", ["MC206"]),
    "the parent's look": ("OldMLP:: a = 1", "Root:: def f(cls):\n    return getmro(cls)", ["MC206"]),
    "a look that goes": ("OldMLP:: def f(cls): ...", "Root:: def f(cls):\n    return cls.__bases__", []),
    "the members of its class": ("OldMLP:: def f(self):\n    return vars(type(self))", "Root:: a = 1", ["MC206"]),
    "the members by the name of its class": (
        "OldMLP:: def f(self):\n    return NewMLP.__dict__",
        "Root:: a = 1",
        ["MC206"],
    ),
    "the parent's look at its annotations": (
        "OldMLP:: a = 1",
        "Root:: def f(self):\n    return self.__annotations__",
        ["MC206"],
    ),
    "annotations by text": (
        "OldMLP:: a = 1",
        "Root:: def f(cls):\n    return getattr(cls, '__annotations__', {})",
        ["MC206"],
    ),
    "the attributes of an instance": (
        "OldMLP:: def f(self):\n    return vars(self), self.__dict__, vars()",
        "Root:: a = 1",
        [],
    ),
    "another class's members": (
        "OldMLP:: def f(self):\n    return vars(self.a), self.a.__annotations__",
        "Root:: a = 1",
        [],
    ),
    "another name of the kind": ("OldMLP:: def f(self):\n    return self.mro_of, '__mro__'", "Root:: a = 1", []),
    "a keyword of the parent": ("OldMLP:: b = 1", "Root, tag='a':: a = 1", ["MC208"]),
    "another keyword of the child": ("OldMLP, other=1:: b = 1", "Root, tag='a':: a = 1", ["MC208"]),
    "one keyword with two values": ("OldMLP, tag='b':: b = 1", "Root, tag='a':: a = 1", ["MC208"]),
    "a keyword of both": ("OldMLP, tag='a':: b = 1", "Root, tag='a':: a = 1", []),
    "a keyword of the child": ("OldMLP, tag='a':: b = 1", "Root:: a = 1", []),
}


@pytest.mark.parametrize(("child", "parent", "codes"), REFUSED.values(), ids=REFUSED)
def test_what_two_classes_may_be_and_one_may_not(child: str, parent: str, codes: list[str]) -> None:
    assert told(child, parent) == codes


@pytest.mark.parametrize("header", ["OldMLP", "OldMLP, tag='b'"])
def test_a_keyword_of_the_parent_may_count_twice_where_it_is_repeated(header: str) -> None:
    (finding,) = merged(f"{header}:: b = 1", "Root, tag='a':: a = 1").findings
    assert finding.finding.help == "Write the class out."


def test_the_metaclass_of_the_parent_stays_beside_keywords_of_the_child() -> None:
    text = merged("OldMLP, tag='b':: b = 1", "Root, metaclass=ABCMeta:: a = 1").text
    assert text.startswith("class NewMLP(Root, tag='b', metaclass=ABCMeta):\n")


PLAIN = "@dataclass object"
DATACLASSES = {
    "two plain ones": ("@dataclass OldMLP:: b: int = 1", f"{PLAIN}:: a: int = 1", []),
    "a child without a field": ("OldMLP:: b = 1\nc: ClassVar[int] = 2", f"{PLAIN}:: a: int = 1", []),
    "fields of a child without decorators": ("OldMLP:: b: int = 1", f"{PLAIN}:: a: int = 1", []),
    "fields of a plain parent": ("@dataclasses.dataclass OldMLP:: b: int = 1", "object:: a: int = 1", ["MC334"]),
    "no fields of a plain parent": ("@dataclass OldMLP:: b: int = 1", "object:: a: 'ClassVar[int]' = 1", []),
    "other decorators": ("@other OldMLP:: b = 1", f"{PLAIN}:: a: int = 1", ["MC334"]),
    "no decorators": ("@no_inherit_decorator OldMLP:: b = 1", f"{PLAIN}:: a: int = 1", ["MC334"]),
    "other decorators than one that makes methods": (
        "@other OldMLP:: b = 1",
        "@total_ordering object:: a = 1",
        ["MC334"],
    ),
    "no decorators over one that makes methods": ("OldMLP:: b = 1", "@total_ordering object:: a = 1", []),
    "other decorators, no fields": ("@other OldMLP:: b = 1", f"{PLAIN}:: a = 1", []),
    "keyword-only fields": ("@dataclass OldMLP:: b: int", "@dataclass(kw_only=True) object:: a: int", ["MC334"]),
    "keyword-only fields of the child": ("@dataclass(kw_only=True) OldMLP:: b: int", f"{PLAIN}:: a: int", ["MC334"]),
    "keyword-only fields of both": (
        "@dataclass(kw_only=True) OldMLP:: b: int",
        "@dataclass(kw_only=True) object:: a: int",
        [],
    ),
    "keyword-only fields that are written again": (
        "@dataclass OldMLP:: a: int",
        "@dataclass(kw_only=True) object:: a: int",
        [],
    ),
    "fields behind a marker": ("@dataclass OldMLP:: b: int", f"{PLAIN}:: _: KW_ONLY\na: int", ["MC334"]),
    "no new fields behind a marker": ("@dataclass OldMLP:: a: int = 1", f"{PLAIN}:: _: KW_ONLY\na: int", []),
    "an order": ("@dataclass OldMLP:: b: int", "@dataclass(order=True) object:: a: int", ["MC334"]),
    "an order of the child": ("@dataclass(order=True) OldMLP:: b: int", f"{PLAIN}:: a: int", []),
    "a frozen parent": ("@dataclass OldMLP:: b: int", "@dataclass(frozen=True) object:: a: int", ["MC334"]),
    "no method of its own": ("@dataclass(repr=False) OldMLP:: b: int", f"{PLAIN}:: a: int", ["MC334"]),
    "no method of the parent": ("@dataclass OldMLP:: b: int", "@dataclass(repr=False) object:: a: int", []),
    "no method of either": (
        "@dataclass(repr=False) OldMLP:: b: int",
        "@dataclass(repr=False) object:: a: int",
        [],
    ),
}


@pytest.mark.parametrize(("child", "parent", "codes"), DATACLASSES.values(), ids=DATACLASSES)
def test_dataclasses_over_each_other(child: str, parent: str, codes: list[str]) -> None:
    assert told(child, parent) == codes


def test_the_values_of_an_enumeration_are_made_by_what_stands_above_them() -> None:
    hook = "@staticmethod\ndef _generate_next_value_(name, *others):\n    return name.lower()"
    text = merged("OldMLP:: A = auto()\nB = A", f"Enum:: def names(self): ...\n{hook}").text
    order = [text.index(part) for part in ("_generate_next_value_", "A = auto()", "B = A", "def names")]
    assert order == sorted(order)
