"""Where one class cannot say what two mean: the parent as a class beside its heir, or an error where that cannot be."""

from __future__ import annotations

import pytest

from tests.unit.convert.examine.test_report import convert


OLD = """\
COUNT = []


class OldMLP:
    __slots__ = ("size",)

    def forward(self, x):
        return __class__ is type(self), x

    def reset(self):
        pass


class OldListed:
    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        COUNT.append(cls.__mro__[1:-1])


class OldLayer(OldListed):
    def count(self):
        return len(COUNT)
"""
NEW = "from ..old.modeling_old import OldLayer, OldMLP\n\n\nclass NewMLP(OldMLP):\n    {}\n"
BESIDE = NEW + "\n\nclass NewLayer(OldLayer):\n    pass\n"


def test_errors_of_a_later_step_are_seen_with_the_parents_of_an_earlier_one_apart(tmp_path):
    child = "def forward(self, x):\n        return [up.forward(x) for up in (super(),)]"
    conversion = convert(tmp_path, BESIDE.format(child), neighbour=OLD)
    (text,) = conversion.files.values()
    names = {}
    exec(text, names)
    assert names["NewMLP"]().forward(1) == [(False, 1)]
    assert names["NewLayer"]().count() == 2
    assert names["NewMLP"].__base__ is names["NewMLPBase"]


@pytest.mark.parametrize(
    ("child", "below"),
    [
        ("def forward(self, x, OldMLP=1):\n        return super().forward(x), OldMLP", ""),
        ('def reset(self):\n        raise AttributeError("Not needed")', ""),
        ("depth = 1", "\n\nclass NewMLPBase:\n    pass\n"),
    ],
    ids=["its name hidden", "words for a merge", "the name taken"],
)
def test_no_parent_is_apart_where_it_would_mean_another(tmp_path, child, below):
    conversion = convert(tmp_path, NEW.format(child) + below, neighbour=OLD)
    assert not conversion.files
    assert {one.code for one in conversion.findings if one.is_error} == {"MC206", "MC208"}


WORD = "With `{}` in it, the class is one with its parent; without, the parent may stand beside it."
COUNTED = "class OldMLP:\n    def __init_subclass__(cls):\n        cls.made = True\n\n    def forward(self, x=1, **kwargs):\n        return x\n"


@pytest.mark.parametrize(
    ("child", "word"),
    [
        ('depth = 1\n\n    def forward(self):\n        raise AttributeError("Not needed")', "AttributeError()"),
        ("forward = AttributeError()", "AttributeError()"),
        ("def forward(self, y=1, **super_kwargs):\n        return self.other(**super_kwargs)", "super_kwargs"),
    ],
)
def test_an_error_names_the_word_that_keeps_the_parent_from_standing_beside(tmp_path, child, word):
    errors = [one for one in convert(tmp_path, NEW.format(child), neighbour=COUNTED).findings if one.is_error]
    assert [(one.code, one.help) for one in errors] == [("MC208", f"Write the class out. {WORD.format(word)}")]


@pytest.mark.parametrize("call", ["return [super().forward(**super_kwargs)]", "x = super().forward(**super_kwargs)"])
def test_parameters_of_the_parent_are_written_out_beside_it(tmp_path, call):
    child = f"def forward(self, y=1, **super_kwargs):\n        {call}"
    (text,) = convert(tmp_path, NEW.format(child), neighbour=COUNTED).files.values()
    assert "def forward(self, x=1, y=1, **kwargs):" in text
    assert call.replace("**super_kwargs", "x=x, **kwargs") in text


def test_a_default_that_reads_its_class_is_not_written_out(tmp_path):
    old = "class OldMLP:\n    share = 4\n\n    def forward(self, v, r=share):\n        return v, r\n"
    child = (
        "share = 6\n\n    def forward(self, v, **super_kwargs):\n        return super().forward(v=v, **super_kwargs)"
    )
    conversion = convert(tmp_path, NEW.format(child), neighbour=old)
    assert [one.code for one in conversion.findings if one.is_error] == ["MC209"] and not conversion.files


def test_an_error_says_why_the_parent_cannot_stand_beside_the_heir_either(tmp_path):
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "shared.py").write_text(
        "MADE = {}\n\n\nclass Table:\n    def __init_subclass__(cls):\n        MADE[cls.__name__] = cls\n"
    )
    old = "from ..shared import Table\n\n\nclass OldMLP(Table):\n    __slots__ = ('size',)\n"
    conversion = convert(tmp_path, NEW.format("depth = 1"), neighbour=old)
    assert [one.help for one in conversion.findings if one.code == "MC208"] == [
        "Write the class out. Nor can the parent stand beside it as a class of its own: `__init_subclass__` cannot be merged "
        "with the parent's: it changes `MADE` of another file, once more for a class that stands for the parent."
    ]


def test_an_attribute_error_of_running_code_is_no_word_for_a_merge(tmp_path):
    child = (
        "def __getattr__(self, name):\n        if name:\n            raise AttributeError(name)\n        return name"
    )
    conversion = convert(tmp_path, NEW.format(child), neighbour=COUNTED)
    assert "class NewMLP(NewMLPBase)" in "".join(conversion.files.values())


def test_no_parent_is_apart_behind_a_class_that_replaces_its_base(tmp_path):
    old = "class OldRoot:\n    pass\n\n\nclass OldMLP(OldRoot):\n    def forward(self, x):\n        return x\n"
    new = "class NewRoot(OldRoot):\n    def forward(self, x):\n        return super().forward(x) + 1\n"
    text = f"from ..old.modeling_old import OldMLP, OldRoot\n\n\n{new}\n\nclass NewMLP(NewRoot, OldMLP):\n    pass\n"
    conversion = convert(tmp_path, text, neighbour=old)
    assert {one.code for one in conversion.findings if one.is_error} == {"MC207"}


def test_copied_code_that_asks_for_a_type_is_told_of_the_heir(tmp_path):
    old = f"{OLD}\n\nclass OldBlock:\n    def forward(self, x):\n        return type(x) is OldMLP\n"
    child = NEW.format("depth = 1").replace("OldMLP\n\n", "OldBlock, OldMLP\n\n", 1)
    child += "\n\nclass NewBlock(OldBlock):\n    pass\n"
    found = [one.message for one in convert(tmp_path, child, neighbour=old).findings if one.code == "MC336"]
    assert found == [
        "the generated `NewBlock` asks whether a type is `NewMLP`; with inheritance it asks for `OldMLP`, which `NewMLP` is not"
    ]


READERS = {
    "the parent's method": ("    def look(self):\n        return {}\n", ""),
    "a function beside it": ("", "\n\ndef look(self):\n    return {}\n"),
}


@pytest.mark.parametrize("where", READERS)
@pytest.mark.parametrize(
    ("looked", "expected"),
    [
        ("type(self).__orig_bases__[0].__args__", (int,)),
        ("getattr(self, '__orig_bases__')[0].__args__", (int,)),
        ("len(type(self).__mro__)", 4),
        ("'depth' in vars(type(self))", False),
        ("'depth' in self.__class__.__dict__", False),
    ],
)
def test_code_that_inspects_the_class_of_an_instance_finds_the_parent_above_it(tmp_path, where, looked, expected):
    method, function = (part.format(looked) for part in READERS[where])
    old = f"from typing import Generic, TypeVar\n\nT = TypeVar('T')\n\n\nclass OldMLP(Generic[T]):\n    depth = 1\n{method}{function}"
    imported = "OldMLP" if method else "OldMLP, look"
    own = "size = 2" if method else "def look(self):\n        return look(self)"
    new = f"from ..old.modeling_old import {imported}\n\n\nclass NewMLP(OldMLP[int]):\n    {own}\n"
    names = {}
    exec(next(iter(convert(tmp_path, new, neighbour=old).files.values())), names)
    assert names["NewMLP"]().look() == expected


@pytest.mark.parametrize(
    ("entered", "times"),
    [
        ("TABLE[cls.__name__] = cls", 2),
        ("key = cls.__name__\n        TABLE[key] = cls", 2),
        ("TABLE.setdefault(cls, 1)", 2),
        ("TABLE.update({cls: 1})", 2),
        ("TABLE['last'] = cls", 1),
    ],
)
def test_what_a_copied_hook_enters_in_a_table_has_the_parent_too(tmp_path, entered, times):
    old = f"TABLE = {{}}\n\n\nclass OldListed:\n    def __init_subclass__(cls):\n        {entered}\n\n\nclass OldMLP(OldListed):\n    pass\n"
    new = "from ..old.modeling_old import TABLE, OldMLP\n\n\nclass NewMLP(OldMLP):\n    def times(self):\n        return len(TABLE)\n"
    names = {}
    exec(next(iter(convert(tmp_path, new, neighbour=old).files.values())), names)
    assert names["NewMLP"]().times() == times
    assert ("NewMLPBase" in names) is (times > 1)


@pytest.mark.parametrize("change", ["OldMLP.table['b'] = 2", "OldMLP.table.update(b=2)"])
def test_a_class_body_that_changes_the_parents_table_finds_it_in_its_own(tmp_path, change):
    old = "class OldMLP:\n    table = {'a': 1}\n"
    new = f"from ..old.modeling_old import OldMLP\n\n\nclass NewMLP(OldMLP):\n    {change}\n"
    names = {}
    exec(next(iter(convert(tmp_path, new, neighbour=old).files.values())), names)
    assert names["NewMLP"].table == {"a": 1, "b": 2}


@pytest.mark.parametrize(
    "member",
    [
        "@staticmethod\n    def put(x):\n        TABLE.append(x)",
        "@staticmethod\n    def put(x):\n        OldMLP.table.append(x)",
        "@classmethod\n    def put(cls, x):\n        cls.table.append(x)",
        "@classmethod\n    def put(cls, x):\n        cls.table += [x]",
        "@staticmethod\n    def put(x):\n        global TABLE\n        TABLE = [*TABLE, x]",
        "class State:\n        table = []\n\n    @staticmethod\n    def put(x):\n        OldMLP.State.table.append(x)",
    ],
)
def test_a_method_that_fills_something_does_so_for_the_class_of_the_generated_file(tmp_path, member):
    old = f"TABLE = []\n\n\nclass OldMLP:\n    table = TABLE\n    {member}\n"
    looks = "self.State.table" if "State" in member else "TABLE" if "global" in member else "self.table"
    old += f"\n    def look(self):\n        return {looks}\n"
    new = "from ..old.modeling_old import OldMLP\n\n\nclass NewMLP(OldMLP):\n    def both(self):\n        OldMLP.put(1)\n        self.put(2)\n        return self.look()\n"
    names = {}
    exec(next(iter(convert(tmp_path, new, neighbour=old).files.values())), names)
    assert names["NewMLP"]().both() == [1, 2]
