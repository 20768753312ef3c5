"""Statements at the top level: carried along with what they change, or refused at their line."""

from __future__ import annotations

import pytest

from modular_converter.convert.examine.top_level import SHOWN
from tests.unit.convert.examine.test_report import convert


NEIGHBOUR = """\
import functools


TABLE = {}
TABLE["a"] = 1
TABLE.update({"b": 2})


def helper(x):
    return x


helper.calls = 0
helper = functools.lru_cache(helper)


class OldMLP:
    def forward(self, x):
        return helper(x), TABLE


"""
CHILD = "from ..old.modeling_old import OldMLP\n\n\nclass NewMLP(OldMLP):\n    pass\n"


def codes(conversion):
    return [(one.code, one.location.line) for one in conversion.findings if one.is_error]


def execute(conversion):
    [text] = [text for path, text in conversion.files.items() if "modeling" in path]
    names: dict[str, object] = {"__name__": "generated"}
    exec(compile(text, "<generated>", "exec"), names)
    return names


REGISTERED = """\
@show.register
def _(x: int):
    return "int"


@show.register
def _(x: str):
    return "str"


"""
SHOW = "from functools import singledispatch\n\n\n@singledispatch\ndef show(x):\n    return x\n\n\n"
LOOP = "    def forward(self, xs):\n        return [show(x) for _, x in enumerate(xs)]\n"


@pytest.mark.parametrize("names", [("_", "_"), ("text", "number")])
def test_functions_come_along_with_what_their_decorators_enter_them_in(tmp_path, names):
    registered = SHOW + REGISTERED.replace("def _", f"def {names[0]}", 1).replace("def _", f"def {names[1]}", 2)
    body = "class OldMLP:\n" + LOOP
    old = execute(convert(tmp_path / "neighbours", CHILD, neighbour=registered + body))
    modular = "from ..old.modeling_old import OldMLP\n" + registered + body.replace("Old", "New")
    for made in (old, execute(convert(tmp_path / "own", modular, neighbour=NEIGHBOUR))):
        assert made["NewMLP"]().forward([1, "a", None]) == ["int", "str", None]


def test_a_registered_function_is_told_that_another_one_displaces(tmp_path):
    neighbour = (
        SHOW + REGISTERED.replace("def _", "def text", 1).replace("def _", "def number") + "class OldMLP:\n" + LOOP
    )
    modular = CHILD.replace("pass", "a = text") + "\n\ndef text(x):\n    return x\n"
    assert codes(convert(tmp_path, modular, neighbour=neighbour)) == [("MC506", 5)]


def test_a_class_may_stand_where_an_import_fails(tmp_path):
    block = "try:\n    from no_such_module import Thing\nexcept ImportError:\n\n    class Thing:\n        size = 4\n"
    modular = CHILD.replace("class", f"{block}\n\nclass").replace("pass", "size = Thing().size")
    assert execute(convert(tmp_path, modular, neighbour=NEIGHBOUR))["NewMLP"].size == 4


def test_a_registered_function_is_told_whose_name_is_defined_again(tmp_path):
    registered = REGISTERED.replace("def _", "def show_one")
    modular = "from ..old.modeling_old import OldMLP\n" + SHOW + registered + "class NewMLP(OldMLP):\n" + LOOP
    assert codes(convert(tmp_path / "own", modular, neighbour=NEIGHBOUR)) == [("MC506", 10)]
    neighbour = SHOW + registered + "class OldMLP:\n" + LOOP
    assert codes(convert(tmp_path / "neighbours", CHILD, neighbour=neighbour)) == [("MC506", 1)]


def test_overloads_have_no_effect(tmp_path):
    overload = (
        "@overload\ndef show(x: int): ...\n@typing.overload\ndef show(x: str): ...\ndef show(x):\n    return x\n"
    )
    modular = (
        f"import typing\nfrom typing import overload\nfrom ..old.modeling_old import OldMLP\n{overload}"
        f"class NewMLP(OldMLP):\n{LOOP}"
    )
    assert not codes(convert(tmp_path, modular, neighbour=NEIGHBOUR))


def test_changes_travel_with_what_they_change(tmp_path):
    names = execute(convert(tmp_path, CHILD, neighbour=NEIGHBOUR))
    assert names["NewMLP"]().forward(3) == (3, {"a": 1, "b": 2})
    assert names["helper"].cache_info().misses == 1 and names["helper"].__wrapped__.calls == 0


BLOCKS = """\
import contextlib

A, B = 1, 2
LIMIT = 1
if A:
    LIMIT = 2
for key in ("a", "b"):
    if key == "b":
        LIMIT += 1
with contextlib.suppress(ImportError):
    import json
    HAS_JSON = True
if (SIZE := 3) > 2:
    NAMES = ["x"]
for name in ("y", "z"):
    NAMES.append(name)
TMP = 1
N = TMP + 1
del TMP


class OldNorm:
    kind = "slow"


class OldFast:
    kind = "fast"


OldFast.limit = LIMIT
if A:
    OldNorm = OldFast


class OldMLP:
    def forward(self):
        return B, LIMIT, HAS_JSON and json.dumps(1), SIZE, NAMES, N, OldNorm().kind, OldFast().limit
"""


def test_blocks_travel_with_what_they_bind_and_change(tmp_path):
    names = execute(convert(tmp_path, CHILD, neighbour=BLOCKS))
    assert names["NewMLP"]().forward() == (2, 3, "1", 3, ["x", "y", "z"], 2, "fast", 3)
    assert "key" in names  # the loop that changes `LIMIT`


def test_a_definition_that_reads_what_a_block_below_changes_is_told(tmp_path):
    neighbour = "T = []\nSIZE = len(T)\nfor i in (1, 2):\n    T.append(i)\n\n\nclass OldMLP:\n    x = SIZE, T\n"
    assert [one.code for one in convert(tmp_path, CHILD, neighbour=neighbour).findings] == ["MC338"]


@pytest.mark.parametrize(
    "statement",
    [
        "if True:\n    class NewHead: ...\n",
        "try:\n    import torch\n    def helper(): ...\nexcept ImportError:\n    pass\n",
        "try:\n    import flash\n    HAS_FLASH = True\nexcept ImportError:\n    HAS_FLASH = False\n",
        "try:\n    import flash\nexcept ImportError:\n    raise ImportError('install flash')\n",
        "if True:\n    import flash\n    flash.start()\n",
        "try:\n    import flash\nfinally:\n    if True:\n        print(1)\n",
        "if True:\n    A = 1\n",
        "for x in (): ...\n",
        "REGISTRY.update(new=NewMLP)\n",
        "with x: ...\n",
        "assert NewMLP\n",
        "del TABLE['x']\n",
        "if __name__ != '__main__':\n    print(1)\n",
        "if __name__ == '__main__':\n    pass\nelse:\n    print(1)\n",
    ],
)
def test_what_would_vanish_is_an_error_at_its_line(tmp_path, statement):
    conversion = convert(tmp_path, CHILD + statement, neighbour=NEIGHBOUR)
    assert codes(conversion) == [("MC506", 6)] and conversion.files == {}


@pytest.mark.parametrize(
    "statement",
    [
        '"A note."\n',
        "pass\n",
        "try:\n    import flash\nexcept ImportError:\n    flash = None\n",
        "if x():\n    pass\nelse:\n    ...\n",
        "if __name__ == '__main__':\n    print(1)\n",
        "TABLE = {}\nTABLE['x'] = 1\n",
    ],
)
def test_what_makes_no_difference_is_none(tmp_path, statement):
    assert codes(convert(tmp_path, CHILD + statement, neighbour=NEIGHBOUR)) == []


@pytest.mark.parametrize(
    ("imported", "statement"),
    [
        ("from ..old.modeling_old import TABLE", "TABLE['x'] = 1"),
        ("from ..old.modeling_old import TABLE as T", "T['x'] = 1"),
        ("from ..old.modeling_old import TABLE", "TABLE |= {'x': 1}"),
        ("from ..old.modeling_old import TABLE", "TABLE.update(x=1)"),
        ("from ..old.modeling_old import helper", "helper.calls = 3"),
        ("from ..old.modeling_old import OldMLP", "OldMLP.flag = True"),
        ("import os", "os.environ['x'] = '1'"),
    ],
)
def test_a_change_of_what_another_file_defines(tmp_path, imported, statement):
    conversion = convert(tmp_path, f"{imported}\n{CHILD}\n\n{statement}\n", neighbour=NEIGHBOUR)
    (error,) = (one for one in conversion.findings if one.is_error)
    assert (error.code, error.location.line) == ("MC506", 9) and f"`{statement}`" in error.message
    assert {one.code for one in conversion.findings} <= {"MC506", "MC308"}


def test_a_change_of_an_imported_object_comes_along_with_its_user(tmp_path):
    child = CHILD.replace("pass", "def forward(self, x):\n        return os.environ['new_x']")
    names = execute(convert(tmp_path, f"import os\nos.environ['new_x'] = '1'\n{child}", neighbour=NEIGHBOUR))
    assert names["NewMLP"]().forward(0) == "1"
    del names["os"].environ["new_x"]


@pytest.mark.parametrize(
    ("changes", "child", "flag"),
    [
        ("OldMLP.flag = True\n", "pass", True),
        ('setattr(OldMLP, "flag", {1})\n', "pass", {1}),
        ("OldMLP.flag = True\n", "flag = False", False),
    ],
)
def test_a_parent_that_is_changed_below_its_definition(tmp_path, changes, child, flag):
    conversion = convert(tmp_path, CHILD.replace("pass", child), neighbour=NEIGHBOUR + changes)
    assert execute(conversion)["NewMLP"].flag == flag


@pytest.mark.parametrize(
    ("changes", "child"),
    [
        ("OldMLP.flags.add(1)\n", "pass"),
        ("OldMLP.flags = []\n", "pass\n\n\nclass NewLayer(OldMLP):\n    pass"),
    ],
)
def test_a_change_of_a_parent_that_one_body_cannot_say(tmp_path, changes, child):
    conversion = convert(tmp_path, CHILD.replace("pass", child), neighbour=NEIGHBOUR + changes)
    assert codes(conversion) == [("MC506", 4)]


FAST = "class Fast:\n    def forward(self, x):\n        return 'fast'\n\n\n"
MARKED = "def marked(cls):\n    cls.forward = lambda self, x: 'marked'\n    return cls\n\n\n"


@pytest.mark.parametrize(
    ("bound", "child", "given"),
    [
        (f"{FAST}if Fast:\n    OldMLP = Fast\n", "pass", "fast"),
        (f"{FAST}if Fast:\n    OldMLP = Fast\n", "flag = 1", "fast"),
        (
            "try:\n    import no_such_module\n\n    OldMLP = None\nexcept ImportError:\n    pass\n",
            '"""Mine."""',
            (1, {"a": 1, "b": 2}),
        ),
        (f"{MARKED}OldMLP = marked(OldMLP)\n", "flag = 1", "marked"),
        (f"{MARKED}OldMLP = marked(OldMLP)\n", "def forward(self, x):\n        return x", 1),
        (
            f"{MARKED}OldMLP = marked(OldMLP)\n",
            "def forward(self, x):\n        return super().forward(x) * 2",
            "markedmarked",
        ),
        (
            "OldMLP.forward = lambda self, x, first=OldMLP.forward: (first(self, x), x)\n",
            "def forward(self, x):\n        return super().forward(x)[1]",
            1,
        ),
        (f"{MARKED}OldMLP = marked(OldMLP)\n", "pass", "marked"),
        (f"{MARKED}OldMLP = marked(OldMLP)\n", "cls = 1", "marked"),  # a member that the function names
        ("from copy import copy\n\nOldMLP = copy(OldMLP)\n", "flag = 1", (1, {"a": 1, "b": 2})),
    ],
)
def test_a_parent_that_is_bound_anew_below(tmp_path, bound, child, given):
    conversion = convert(tmp_path, CHILD.replace("pass", child), neighbour=f"{NEIGHBOUR}{bound}")
    assert execute(conversion)["NewMLP"]().forward(1) == given


@pytest.mark.parametrize(
    "change",
    [
        "NewMLP.flag = 1",
        'setattr(NewMLP, "flag", 1)',
        'for name in ("flag", "other"):\n    setattr(NewMLP, name, 1)',
        "NewMLP = [setattr(NewMLP, 'flag', 1), NewMLP][1]",
    ],
)
def test_an_heir_keeps_the_changes_below_it(tmp_path, change):
    assert execute(convert(tmp_path, f"{CHILD}\n\n{change}\n", neighbour=NEIGHBOUR))["NewMLP"].flag == 1


@pytest.mark.parametrize(
    ("above", "decorator"),
    [
        ("show = functools.singledispatch(lambda x: 1)\n", "@show.register(int)"),
        ("@functools.singledispatch\ndef show(x):\n    return 1\n", "@show.register"),
        (
            "KNOWN = []\n\n\ndef enter(f):\n    KNOWN.append(f)\n    return f\n\n\ndef show(x):\n    return KNOWN[0](x)\n",
            "@enter",
        ),
    ],
)
def test_what_a_decorator_enters_comes_along(tmp_path, above, decorator):
    body = "class OldMLP:\n    def forward(self, x):\n        return show(x)\n"
    registered = f"import functools\n\n{above}\n\n{decorator}\ndef other(x: int):\n    return 2\n\n\n"
    assert execute(convert(tmp_path, CHILD, neighbour=registered + body))["NewMLP"]().forward(1) == 2


@pytest.mark.parametrize(
    "extension", ['__all__ += ["NewHead"]', '__all__.extend(("NewHead",))', '__all__.append("NewHead")']
)
def test_every_spelling_of_all_counts(tmp_path, extension):
    modular = CHILD + f'\n\nclass NewHead:\n    pass\n\n\n__all__ = ["NewMLP"]\n{extension}\n'
    assert execute(convert(tmp_path, modular, neighbour=NEIGHBOUR))["__all__"] == ["NewMLP", "NewHead"]


@pytest.mark.parametrize(
    ("statement", "cure"),
    [
        ("if helper:\n    print(1)\n", "Write definitions at the top level; move other code into a function"),
        ("REGISTRY.update(new=NewMLP)\n", "Write definitions at the top level; move other code into a function"),
    ],
)
def test_the_cure_of_a_statement_that_would_vanish(tmp_path, statement, cure):
    [found] = [one for one in convert(tmp_path, CHILD + statement, neighbour=NEIGHBOUR).findings if one.is_error]
    assert found.help.startswith(cure) and f"`{statement.partition(chr(10))[0]}`" in found.message


@pytest.mark.parametrize(
    ("changed", "cure"),
    [
        ("OldMLP.flags.add(1)\n", "Write what is set there into the body of the class that inherits from `OldMLP`."),
        ("for i in (1, 2):\n    fill(TABLE, i)\n", "Write `TABLE` out in the modular file"),
    ],
)
def test_the_cure_of_a_change_in_the_neighbour(tmp_path, changed, cure):
    conversion = convert(tmp_path, CHILD, neighbour=NEIGHBOUR + changed)
    [found] = [one for one in conversion.findings if one.is_error]
    place = NEIGHBOUR.count("\n") + 1
    assert found.help.startswith(cure) and f"modeling_old.py:{place}" in found.message


@pytest.mark.parametrize(
    ("assertion", "is_told"),
    [
        ('assert TABLE == {"a": 1, "b": 2}', False),
        ('assert len(TABLE) == 2 and "a" in TABLE, "two"', False),
        ("assert isinstance(OldMLP, type)", False),
        ("if len(TABLE) != 2:\n    raise ValueError(f'{TABLE}')", False),
        ("print(sorted(TABLE.items()))", False),
        ("assert all(key.islower() for key in TABLE)", False),
        ('assert TABLE.pop("a")', True),
        ("if TABLE:\n    setattr(OldMLP, 'size', 1)", True),
        ("if TABLE:\n    helper(TABLE).size = 1", True),
        ("assert helper(TABLE)", True),
        ("def len(x):\n    return x.pop('a')\n\n\nassert len(TABLE)", True),
    ],
)
def test_a_statement_of_a_neighbour_that_changes_nothing_may_be_lost(tmp_path, assertion, is_told):
    conversion = convert(tmp_path, CHILD, neighbour=f"{NEIGHBOUR}{assertion}\n")
    assert ("MC506" in {one.code for one in conversion.findings if one.is_error}) is is_told


KNOWN = "KNOWN = []\n\n\ndef note(x):\n    KNOWN.append(x)\n    return x\n\n\n"
READING = "class OldMLP:\n    first = note(1)\n\n    def forward(self, x):\n        return len(KNOWN)\n\n\n"


@pytest.mark.parametrize(
    "lost",
    [
        "class OldOther:\n    size = note(6)\n",
        "class OldOther:\n    KNOWN.append(6)\n",
        "SIX = note(6)\n",
        "SIX = KNOWN[:1].pop() or KNOWN.pop()\n",
        "def other(x=note(6)):\n    return x\n",
    ],
)
def test_a_definition_that_is_left_out_and_fills_another(tmp_path, lost):
    conversion = convert(tmp_path, CHILD, neighbour=f"{KNOWN}{READING}{lost}")
    [found] = [one for one in conversion.findings if one.is_error]
    place = (KNOWN + READING).count("\n") + 1
    assert found.code == "MC506" and f"`KNOWN` below its definition, at modeling_old.py:{place}" in found.message


COUNTED = """NUMBER = 0


def count():
    global NUMBER
    NUMBER += 1
    return NUMBER


def twice():
    count()
    return count()


class OldMLP:
    first = twice()

    def forward(self, x):
        return NUMBER, count()


"""


@pytest.mark.parametrize(
    ("lost", "heir"),
    [
        ("count()\n", "pass"),
        ("twice()\n", "pass"),
        ("class OldOther:\n    size = twice()\n", "pass"),
    ],
)
def test_a_count_that_is_lost(tmp_path, lost, heir):
    child = f"from ..old.modeling_old import OldMLP, count\n\n\nclass NewMLP(OldMLP):\n    {heir}\n"
    conversion = convert(tmp_path, child, neighbour=COUNTED + lost)
    assert {one.code for one in conversion.findings if one.is_error} == {"MC506"}
    assert any("the change of `NUMBER` below its definition" in one.message for one in conversion.findings)


@pytest.mark.parametrize(("heir", "first", "counted"), [("first = 1", 1, (2, 3)), ("first = count()", 3, (3, 4))])
def test_a_count_of_two_classes(tmp_path, heir, first, counted):
    child = f"from ..old.modeling_old import OldMLP, count\n\n\nclass NewMLP(OldMLP):\n    {heir}\n"
    made = execute(convert(tmp_path, child, neighbour=COUNTED))["NewMLP"]
    assert (made.first, made().forward(0)) == (first, counted)


def test_counts_in_another_order(tmp_path):
    text = f"{COUNTED}class OldOther:\n    size = count()\n"
    child = "from ..old.modeling_old import OldMLP, OldOther\n\n\n"
    classes = ["class NewMLP(OldMLP):\n    pass\n\n\n", "class NewOther(OldOther):\n    pass\n\n\n"]
    assert not [
        one for one in convert(tmp_path, child + "".join(classes), neighbour=text).findings if one.code == "MC338"
    ]
    [found] = [
        one
        for one in convert(tmp_path, child + "".join(classes[::-1]), neighbour=text).findings
        if one.code == "MC338"
    ]
    assert "the generated `NewMLP` would find `NewOther` of modeling_old.py" in found.message


@pytest.mark.parametrize(
    ("text", "length"),
    [
        (f"{KNOWN}class OldOther:\n    size = note(6)\n\n\n{READING}    other = OldOther\n", 2),
        (f"{KNOWN}{READING}class OldOther:\n    def forward(self):\n        KNOWN.append(note(6))\n", 1),
        (f"{KNOWN}KNOWN.append(0)\n\n\n{READING}", 2),
    ],
    ids=["it comes along", "it runs later", "it belongs to the table"],
)
def test_what_fills_a_table_and_is_not_lost(tmp_path, text, length):
    assert execute(convert(tmp_path, CHILD, neighbour=text))["NewMLP"]().forward(1) == length


def test_a_long_statement_is_shown_in_part(tmp_path):
    long = f"print(1, {'2' * SHOWN})\n"
    [found] = [one for one in convert(tmp_path, CHILD + long, neighbour=NEIGHBOUR).findings if one.is_error]
    assert f"`{long[:SHOWN]}…`" in found.message


@pytest.mark.parametrize(
    ("exports", "is_lost"),
    [
        ('__all__ = [NewMLP.__name__, "NewMLP"]\n', True),
        ('__all__ = [*["NewMLP"]]\n', True),
        ('__all__ = sorted(["NewMLP"])\n', True),
        ('__all__ = ["NewMLP"]\n__all__ += [NewMLP.__name__]\n', True),
        ("__all__ = []\n__all__.append(NewMLP.__name__)\n", True),
        ('__all__ = ["NewMLP"] + ["NewMLP"]\n', False),
        ('__all__: list[str] = ("NewMLP",)\n__all__ += ["NewMLP"]\n', False),
        ('__all__ = []\n__all__.extend(["NewMLP"])\n__all__.append("NewMLP")\n', False),
    ],
)
def test_names_in_all_that_are_no_strings(tmp_path, exports, is_lost):
    conversion = convert(tmp_path, CHILD + exports, neighbour=NEIGHBOUR)
    assert codes(conversion) == [("MC506", CHILD.count("\n") + 1)] * is_lost


@pytest.mark.parametrize(
    ("statement", "changed"),
    [
        ("OldMLP.kinds.append(OldTower)", ["OldMLP"]),
        ("OldMLP.register(OldTower)", ["OldMLP"]),
        ("OldMLP.kinds += [OldTower]", ["OldMLP"]),
        ("del OldTower.kinds", ["OldTower"]),
        ("register(OldMLP, OldTower)", ["OldMLP", "OldTower"]),
        ("for one in (OldTower,):\n    one.kind = 1", ["OldTower"]),
    ],
)
def test_what_a_statement_of_the_neighbour_changes(tmp_path, statement, changed):
    neighbour = f"class OldMLP:\n    kinds = []\n\n\nclass OldTower:\n    kinds = []\n\n\n{statement}\n"
    modular = (
        "from ..old.modeling_old import OldMLP, OldTower\nclass NewMLP(OldMLP): ...\nclass NewTower(OldTower): ...\n"
    )
    found = [one.message.split("`")[1] for one in convert(tmp_path, modular, neighbour=neighbour).findings]
    assert found == changed
