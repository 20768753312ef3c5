"""The ancestors of a class, in whatever modules they are."""

from __future__ import annotations

import pathlib

import pytest

from modular_converter.convert.batch import Run
from modular_converter.convert.inherit.build import sets_attribute
from modular_converter.convert.source.library import Library
from modular_converter.settings.load import profile_settings


def names(folder: pathlib.Path, texts: dict[str, str], name: str, mentions: str = "") -> list[str | None]:
    """The names of a class of `one.py` and its ancestors, None for those that cannot be seen."""
    for module, text in texts.items():
        (folder / f"{module}.py").write_text(text)
    library = Library(profile_settings())
    found = library.resolver.lineage(name, library.module(str(folder / "one.py")), mentions)
    return [one and one.name for one in found]


def test_ancestors_are_followed_into_other_modules(tmp_path: pathlib.Path) -> None:
    texts = {
        "one": "from .two import B\nfrom .missing import M\nfrom .two import C as D\nfrom torch import nn\n\n"
        "class A(B, M, D, nn.Module, object): ...\n",
        "two": "class Base: ...\n\nclass B(Base): ...\n\ndef C(): ...\n\nclass Function(C): ...\n",
    }
    assert names(tmp_path, texts, "A") == ["A", "B", "Base", None, None, None]
    assert names(tmp_path, texts, "A", mentions="Function") == ["A", "B", "Base", None, None, None]
    assert names(tmp_path, texts, "A", mentions="nowhere") == ["A", None, None, None, None]
    texts["two"] = "class (:\n"
    assert names(tmp_path, texts, "A") == ["A", None, None, None, None]


def test_other_names_and_packages_are_followed_to_the_class(tmp_path: pathlib.Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep/two.py").write_text(
        "class Root: ...\n\nclass Two(Root):\n    special = 1\n\n__all__ = ['Two']\n"
    )
    (tmp_path / "deep/__init__.py").write_text("from .two import *\n")
    text = "from .deep import Two as Base\nfrom . import deep\n\nOther = Base\n\nclass A(Other): ...\nclass B(deep.Two): ...\n"
    assert names(tmp_path, {"one": text}, "A", mentions="special") == ["A", "Two", "Root"]
    assert names(tmp_path, {"one": text}, "B") == ["B", "Two", "Root"]


def test_what_is_no_class_has_no_ancestors(tmp_path: pathlib.Path) -> None:
    texts = {"one": "def f(): ...\n\nclass A(f): ...\n"}
    assert names(tmp_path, texts, "A") == ["A", None]


CHAIN = 20


def test_long_chains_are_followed_and_circles_left(tmp_path: pathlib.Path) -> None:
    chain = "class A0: ...\n" + "".join(f"class A{n + 1}(A{n}): ...\n" for n in range(2 * CHAIN))
    assert names(tmp_path, {"one": chain}, f"A{2 * CHAIN}") == [f"A{n}" for n in range(2 * CHAIN, -1, -1)]
    hops = {f"m{n}": f"from .m{n + 1} import A\n" for n in range(CHAIN)} | {f"m{CHAIN - 1}": "class A: ...\n"}
    assert names(tmp_path, hops | {"one": "from .m0 import A\n"}, "A") == ["A"]
    circle = {"one": "from .two import A\n", "two": "from .one import A\n"}
    assert names(tmp_path, circle, "A") == [None]


def test_each_ancestor_is_seen_once_however_often_it_is_a_base(tmp_path: pathlib.Path) -> None:
    """In a circle of ten bases each, all ways have 10 ** 20 steps by the time that they are 20 classes long."""
    circle = {
        "one": f"class A({'B, ' * 10}metaclass=M): ...\nclass B({'A, ' * 10}): ...\n"
        f"class M({'N, ' * 10}): ...\nclass N({'M, ' * 10}): ...\n"
    }
    assert names(tmp_path, circle, "A") == ["A", "B"]
    library = Library(profile_settings())
    module = library.module(str(tmp_path / "one.py"))
    assert not library.resolver.may_bind("A", module, "size")
    assert not library.resolver.makes_otherwise("M", module)
    diamond = {"one": "class A: ...\nclass B(A): ...\nclass C(A): ...\nclass D(B, C): ...\n"}
    assert names(tmp_path, diamond, "D") == ["D", "B", "A", "C"]


def test_the_base_of_a_class_that_takes_its_name_cannot_be_seen(tmp_path: pathlib.Path) -> None:
    texts = {"one": "from .two import A\n\nclass A(A): ...\n", "two": "class A: ...\n"}
    assert names(tmp_path, texts, "A") == ["A", None]


def test_a_method_that_sets_an_attribute(tmp_path: pathlib.Path) -> None:
    text = (
        "class A:\n"
        "    def f(this, other):\n        this.a = other.b\n        other.c = 1\n        x = this.d\n\n"
        "    def g(self):\n        self.e = 1\n\n"
        "    def h(*args):\n        args[0].i = 1\n"
    )
    (tmp_path / "one.py").write_text(text)
    (statement,) = Library(profile_settings()).module(str(tmp_path / "one.py")).statements
    found = {(method, name) for method in "fghx" for name in "abcdei" if sets_attribute(statement, method, name)}
    assert found == {("f", "a"), ("g", "e")}


@pytest.mark.parametrize(
    ("base", "attribute", "may"),
    [
        ("Two", "special", True),
        ("Two", "other", False),
        ("object", "__init__", False),
        ("dict", "get", True),
        ("dict", "other", False),
        ("nn.Module", "forward", False),
        ("Module", "to", True),
        ("nn.Linear", "other", True),
        ("Unknown", "other", True),
        ("abc.ABC", "other", False),
    ],
)
def test_what_a_base_may_bind(tmp_path: pathlib.Path, base: str, attribute: str, may: bool) -> None:
    (tmp_path / "two.py").write_text("class Root:\n    special = 1\n\nclass Two(Root): ...\n")
    (tmp_path / "one.py").write_text(
        "import abc\nfrom torch import nn\nfrom torch.nn import Module\nfrom .two import Two\n\n"
        f"class A({base}): ...\n"
    )
    library = Library(profile_settings())
    assert library.resolver.may_bind("A", library.module(str(tmp_path / "one.py")), attribute) is may


BODY = """
    def __init__(self, config):
        super().__init__(config)
        del self.y

    @property
    def size(self):
        return super().size

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
"""


@pytest.mark.parametrize("is_circle", [False, True])
def test_a_conversion_of_many_bases_asks_each_once(is_circle: bool) -> None:
    """25 classes, each with all before it as bases, or all others: as many ways as subsets, or orders, of them."""
    numbers = range(25)
    bases = {
        one: ", ".join(f"OldC{n}" for n in numbers if n < one or (is_circle and n != one)) or "object"
        for one in numbers
    }
    old = "\n\n".join(f"class OldC{one}({bases[one]}, metaclass=OldC{one}):{BODY}" for one in numbers)
    new = f"from ..old.modeling_old import OldC23, OldC24\n\n\nclass NewC24(OldC24):{BODY}\n\nclass NewC23(OldC23):{BODY}"
    root = "/many/bases/models"
    texts = {f"{root}/old/modeling_old.py": old, f"{root}/new/modular_new.py": new}
    (conversion,) = Run(profile_settings(), texts, workers=1).convert([f"{root}/new/modular_new.py"])
    assert {one.code for one in conversion.findings if one.is_error} == {"MC313", "MC503"}


def test_helpers_of_a_decorator_are_asked_once_each() -> None:
    """25 functions that hand the class to each other: as many ways as subsets of them."""
    helpers = [f"set_{number}" for number in range(25)]
    calls = "".join(f"    {one}(cls)\n" for one in helpers)
    shared = "".join(f"def {one}(cls):\n{calls}    cls.of_{one} = 1\n\n\n" for one in helpers)
    old = "from ..shared import made\n\n\n@made\nclass OldMLP:\n    of_set_24 = 2\n"
    root = "/many/helpers/models"
    texts = {
        f"{root}/shared.py": f"{shared}def made(cls):\n{calls}    return cls\n",
        f"{root}/old/modeling_old.py": old,
        f"{root}/new/modular_new.py": "from ..old.modeling_old import OldMLP\n\n\nclass NewMLP(OldMLP):\n    of_set_24 = 3\n",
    }
    (conversion,) = Run(profile_settings(), texts, workers=1).convert([f"{root}/new/modular_new.py"])
    assert "MC334" in {one.code for one in conversion.findings}
