"""A class as the heir of a parent: each case says what is wanted, what the parent has, and the heir to be written."""

from __future__ import annotations

import textwrap
from typing import NamedTuple

import pytest

from modular_converter.authoring.class_changes import ParentClass, heir_of
from modular_converter.convert.source.library import ModelNames
from modular_converter.settings.load import profile_settings


class Case(NamedTuple):
    wanted: str
    parent: str
    heir: str | None
    name: str = "NewLayer"
    """The parent's name in the target."""
    no_inherit_module: str = ""


INIT = "    def __init__(self, config):\n        super().__init__()\n"
CASES = {
    "twin": Case(
        "class NewLayer(nn.Module):\n    size = 1",
        "class NewLayer(nn.Module):\n    size = 1",
        "class NewLayer(OldLayer):\n    pass",
    ),
    "twin_of_another_name": Case(
        "class NewBlock(nn.Module):\n    size = 1",
        "class NewLayer(nn.Module):\n    size = 1",
        "class NewBlock(OldLayer):\n    pass",
    ),
    "attribute": Case(
        "class NewLayer(nn.Module):\n    size = 2\n    other = 3\n    new = 4",
        "class NewLayer(nn.Module):\n    size = 1\n    other = 3",
        "class NewLayer(OldLayer):\n    size = 2\n    new = 4",
    ),
    "attribute_that_lost_the_blank_line_behind_it": Case(
        "class NewLayer(nn.Module):\n    size = 1\n    other = 3",
        "class NewLayer(nn.Module):\n    size = 1\n\n    other = 3",
        "class NewLayer(OldLayer):\n    other = 3",
    ),
    "attribute_between_others_cannot_be_added": Case(
        "class NewLayer(nn.Module):\n    new = 4\n    size = 2",
        "class NewLayer(nn.Module):\n    size = 2",
        None,
    ),
    "removed_attribute": Case(
        "class NewLayer(nn.Module):\n    size = 1",
        "class NewLayer(nn.Module):\n    size = 1\n    other = 3",
        "class NewLayer(OldLayer):\n    other = AttributeError()",
    ),
    "removed_method": Case(
        "class NewLayer(nn.Module):\n    size = 1",
        "class NewLayer(nn.Module):\n    size = 1\n\n    def f(self):\n        return 1",
        'class NewLayer(OldLayer):\n\n    def f(self):\n        raise AttributeError("Not needed for NewLayer")',
    ),
    "docstring_cannot_be_removed": Case(
        "class NewLayer(nn.Module):\n    size = 1",
        'class NewLayer(nn.Module):\n    """Old."""\n\n    size = 1',
        None,
    ),
    "statement_appended": Case(
        f"class NewLayer(nn.Module):\n{INIT}        self.a = A(config)\n        self.b = B(config)",
        f"class NewLayer(nn.Module):\n{INIT}        self.a = A(config)",
        "class NewLayer(OldLayer):\n\n    def __init__(self, config):\n        super().__init__(config)\n"
        "        self.b = B(config)",
    ),
    "statement_appended_behind_a_call_with_all_arguments": Case(
        "class NewLayer(nn.Module):\n    def f(self, a, *rest, b=1, **more):\n        y = g(a, rest, b, more)\n        h(y)\n        z = a\n"
        "        return z",
        "class NewLayer(nn.Module):\n    def f(self, a, *rest, b=1, **more):\n        y = g(a, rest, b, more)\n        h(y)",
        "class NewLayer(OldLayer):\n\n    def f(self, a, *rest, b=1, **more):\n        super().f(a, *rest, b=b, **more)\n"
        "        z = a\n        return z",
    ),
    "statement_replaced_and_removed": Case(
        f"class NewLayer(nn.Module):\n{INIT}        self.a = A(config)\n        self.b = A(config)\n        self.d = 1",
        f"class NewLayer(nn.Module):\n{INIT}        self.a = A(config)\n        self.b = B(config)\n"
        "        self.c = 3\n        self.d = 1",
        "class NewLayer(OldLayer):\n\n    def __init__(self, config):\n        super().__init__(config)\n"
        "        del self.c\n        self.b = A(config)",
    ),
    "call_that_keeps_the_parent_out": Case(
        f"class NewLayer(nn.Module):\n{INIT}        self.x = X(config)\n\n    def f(self):\n        return 1",
        f"class NewLayer(nn.Module):\n{INIT}        self.a = A(config)\n        if self.a:\n            self.b = 1\n"
        "\n    def f(self):\n        return 1",
        "class NewLayer(OldLayer):\n\n    def __init__(self, config):\n        nn.Module.__init__(self)\n"
        "        self.x = X(config)",
    ),
    "docstring_of_a_method": Case(
        "class NewLayer(nn.Module):\n    def f(\n        self,\n        x: int,\n        y: int,\n    ) -> int:\n"
        '        """New."""\n        z = x + y\n        return z',
        "class NewLayer(nn.Module):\n    def f(\n        self,\n        x: int,\n        y: int,\n    ) -> int:\n"
        '        """Old."""\n        z = x + y\n        return z',
        "class NewLayer(OldLayer):\n\n    def f(self, **super_kwargs):\n"
        '        """New."""\n        return super().f(**super_kwargs)',
    ),
    "docstring_of_a_method_with_parameters_on_two_lines": Case(
        'class NewLayer(nn.Module):\n    def f(self, x: int,\n          y: int):\n        """New."""\n        return x + y',
        'class NewLayer(nn.Module):\n    def f(self, x: int,\n          y: int):\n        """Old."""\n        return x + y',
        "class NewLayer(OldLayer):\n\n    def f(self, **super_kwargs):\n"
        '        """New."""\n        return super().f(**super_kwargs)',
    ),
    "decorators_and_docstring_of_a_method_that_is_written_anew": Case(
        "class NewLayer(nn.Module):\n    @cached(\n        size=1,\n    )\n    def f(self):\n"
        '        """Same."""\n        return 2',
        "class NewLayer(nn.Module):\n    @cached(\n        size=1,\n    )\n    def f(self):\n"
        '        """Same."""\n        return 1',
        "class NewLayer(OldLayer):\n\n    def f(self):\n        return 2",
    ),
    "decorator_that_makes_another_kind_of_member_stays": Case(
        "class NewLayer(nn.Module):\n    @property\n    def f(self):\n        return 2\n\n"
        "    @f.setter\n    def f(self, x):\n        self.x = 2",
        "class NewLayer(nn.Module):\n    @property\n    def f(self):\n        return 1\n\n"
        "    @f.setter\n    def f(self, x):\n        self.x = 1",
        "class NewLayer(OldLayer):\n\n    @property\n    def f(self):\n        return 2\n\n"
        "    @f.setter\n    def f(self, x):\n        self.x = 2",
    ),
    "local_name_that_the_heir_reads_is_bound_there_too": Case(
        f"class NewLayer(nn.Module):\n{INIT}        size = config.size\n        half = size // 2\n"
        "        self.a = A(size)\n        self.b = C(half)\n        self.c = C(size)",
        f"class NewLayer(nn.Module):\n{INIT}        size = config.size\n        half = size // 2\n"
        "        self.a = A(size)\n        self.b = B(half)\n        self.c = C(size)",
        "class NewLayer(OldLayer):\n\n    def __init__(self, config):\n        super().__init__(config)\n"
        "        size = config.size\n        half = size // 2\n        self.b = C(half)",
    ),
    "parameter_that_the_parent_s_lines_assign": Case(
        "class NewLayer(nn.Module):\n    def f(self, x, y=None):\n        z = x\n        x = x + y\n        return x * z",
        "class NewLayer(nn.Module):\n    def f(self, x, y):\n        z = x\n        x = x + y\n        return x * z",
        "class NewLayer(OldLayer):\n\n    def f(self, x, y=None):\n        return super().f(x, y)",
    ),
    "parameter_that_a_reader_would_take_for_the_parent_s": Case(
        "class NewLayer(nn.Module):\n    def __init__(self, size):\n        super().__init__()\n"
        "        size = size * 2\n        self.a = A(size)\n        self.c = C()\n        self.b = B(size)",
        "class NewLayer(nn.Module):\n    def __init__(self, size):\n        super().__init__()\n"
        "        size = size * 2\n        self.a = A(size)\n        self.c = C()",
        "class NewLayer(OldLayer):\n\n    def __init__(self, size):\n        nn.Module.__init__(self)\n"
        "        size = size * 2\n        self.a = A(size)\n        self.c = C()\n        self.b = B(size)",
    ),
    "one_method_by_super_although_another_cannot_be": Case(
        f"class NewLayer(nn.Module):\n{INIT}        self.a = 1\n        self.b = 2\n        self.c = 3\n\n"
        "    def f(self):\n        self.a = 1\n        print()\n        self.c = 3",
        f"class NewLayer(nn.Module):\n{INIT}        self.a = 1\n        self.b = 2\n\n"
        "    def f(self):\n        self.a = 1\n        self.c = 3",
        "class NewLayer(OldLayer):\n\n    def __init__(self, config):\n        super().__init__(config)\n"
        "        self.c = 3\n\n    def f(self):\n        self.a = 1\n        print()\n        self.c = 3",
    ),
    "attribute_that_the_parent_has_twice": Case(
        "class NewLayer(nn.Module):\n    config: Config\n    size = 1",
        "class NewLayer(nn.Module):\n    config: Config\n    size = 1\n    config: Config",
        "class NewLayer(OldLayer):\n    pass",
    ),
    "parentheses_decide": Case(
        "class NewLayer(nn.Module):\n    def f(self, x):\n        return (self.w * x).to(1)",
        "class NewLayer(nn.Module):\n    def f(self, x):\n        return self.w * x.to(1)",
        "class NewLayer(OldLayer):\n\n    def f(self, x):\n        return (self.w * x).to(1)",
    ),
    "other_base": Case(
        "class NewLayer(GradientCheckpointingLayer):\n    size = 1",
        "class NewLayer(nn.Module):\n    size = 1",
        "class NewLayer(OldLayer, GradientCheckpointingLayer):\n    pass",
    ),
    "base_cannot_be_removed": Case(
        "class NewLayer(nn.Module):\n    size = 1",
        "class NewLayer(nn.Module, Mixin):\n    size = 1",
        None,
    ),
    "keyword_of_the_parent": Case(
        "class NewKwargs(Given, total=False):\n    size: int\n    new: int",
        "class NewKwargs(Given, total=False):\n    size: int",
        "class NewKwargs(OldLayer):\n    new: int",
        "NewKwargs",
    ),
    "other_keyword": Case(
        "class NewKwargs(Given, total=False):\n    size = 1",
        "class NewKwargs(Given):\n    size = 1",
        "class NewKwargs(OldLayer, total=False):\n    pass",
        "NewKwargs",
    ),
    "other_keyword_for_fields_of_the_parent": Case(
        "class NewKwargs(Given, total=False):\n    size: int",
        "class NewKwargs(Given):\n    size: int",
        None,
        "NewKwargs",
    ),
    "keyword_cannot_be_removed": Case(
        "class NewKwargs(Given):\n    size: int",
        "class NewKwargs(Given, total=False):\n    size: int",
        None,
        "NewKwargs",
    ),
    "decorators_removed_by_the_library_s_own": Case(
        "class NewLayer(nn.Module):\n    size = 1\n\n    def f(self):\n        return 2",
        "@auto\nclass NewLayer(nn.Module):\n    size = 1\n\n    @cached\n    def f(self):\n        return 1",
        "@no_inherit_decorator\nclass NewLayer(OldLayer):\n\n    @no_inherit_decorator\n    def f(self):\n        return 2",
        no_inherit_module="...utils",
    ),
    "decorator_cannot_be_removed": Case(
        "class NewLayer(nn.Module):\n    size = 1",
        "@auto\nclass NewLayer(nn.Module):\n    size = 1",
        None,
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_heir(case: Case) -> None:
    parent = ParentClass(case.parent, case.name, "OldLayer", case.no_inherit_module)
    heir = heir_of(case.wanted, parent, ModelNames(), profile_settings())
    assert (heir.text.rstrip() if heir else None) == (textwrap.dedent(case.heir) if case.heir else None)


def test_two_parents_in_the_same_words_are_each_the_base_of_their_own_heir() -> None:
    wanted, text = "class NewLayer(nn.Module):\n    size = 2", "class NewLayer(nn.Module):\n    size = 1"
    settings, names = profile_settings("transformers"), ModelNames()
    for base in ("OldLayer", "OlderLayer", "OldLayer"):
        heir = heir_of(wanted, ParentClass(text, "NewLayer", base), names, settings)
        assert heir is not None and heir.text == f"class NewLayer({base}):\n    size = 2\n"


def test_what_differs_from_the_parent_is_noted() -> None:
    wanted = "class NewLayer(nn.Module):\n    size = 2\n\n    def g(self):\n        return 2"
    parent = "class NewLayer(nn.Module):\n    size = 1\n    other = 3\n\n    def f(self):\n        return 1"
    heir = heir_of(wanted, ParentClass(parent, "NewLayer", "OldLayer"), ModelNames(), profile_settings())
    assert heir is not None and heir.notes == ("new `g`", "no `f`", "no `other`", "other `size`")
