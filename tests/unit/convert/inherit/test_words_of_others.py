"""Words of a neighbour that do not mean its model keep their names, wherever code writes and reads them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from modular_converter.convert.batch import Run
from modular_converter.findings import Conversion
from modular_converter.settings.load import profile_settings


EXT = """\
def scaled(old_dim=1): ...


TABLE = {"old": 1, "old_rope": 2}


def look(key):
    return TABLE[key]


class Ext:
    old_flag = 1

    def run(self):
        return self.old_flag, self.base_read
"""


def converted(neighbour: str, model: str = "old", cased: str = "Old") -> Conversion:
    path = "/words/models/new/modular_new.py"
    texts = {
        f"/words/models/{model}/modeling_{model}.py": neighbour,
        "/words/ext.py": EXT,
        path: f"from ..{model}.modeling_{model} import {cased}MLP\n\n\nclass NewMLP({cased}MLP):\n    pass\n",
    }
    [conversion] = Run(replace(profile_settings(), formatter="none"), texts, workers=1).convert([path])
    assert not conversion.failed, conversion.findings
    return conversion


def generated(neighbour: str, model: str = "old", cased: str = "Old") -> str:
    return converted(neighbour, model, cased).files["/words/models/new/modeling_new.py"]


@pytest.mark.parametrize(
    "body",
    [
        'NAME = "old_freq"\n\n\nclass OldMLP:\n    def f(self):\n        return self.old_freq\n',
        'class OldMLP:\n    def f(self):\n        self.keep(name="old_freq")\n        return self.old_freq\n',
        "from ...ext import scaled\n\n\nclass OldMLP:\n    def f(self):\n        self.old_dim = 1\n"
        '        return scaled(old_dim=getattr(self, "old_dim"))\n',
        "from ...ext import scaled\n\n\nclass OldMLP:\n    def f(self, act=scaled):\n        return act(old_dim=1)\n",
        "from ...ext import Ext\n\n\nclass OldMLP(Ext):\n    def f(self):\n        self.old_flag = self.old_flag + 1\n",
        "from ...unread import Ext\n\n\nclass OldMLP(Ext):\n    old_prefix = 1\n",
        'from ...ext import look\n\n\nclass OldMLP:\n    kind = "old_rope"\n    def f(self):\n'
        '        return look("old_rope"), look(self.kind)\n',
    ],
    ids=["constant", "keyword", "foreign keyword", "other name", "attribute of a base", "attribute for a base", "key"],
)
def test_one_word_has_one_name_in_code_and_in_quotes(body: str) -> None:
    assert "new_" not in generated(body)


def test_what_the_model_binds_and_reads_is_renamed() -> None:
    text = generated(
        'class OldMLP:\n    def f(self, old_x):\n        self.old_y = old_x\n        return {"old_y": 1}\n'
    )
    assert "old_" not in text


@pytest.mark.parametrize("module", ["...sampling", "..sampling"])
def test_the_name_within_another_word_is_no_name(module: str) -> None:
    body = f'from {module} import sample\n\n\nclass SamMLP:\n    def same(self, samples):\n        return sample("same")\n'
    text = generated(body, "sam", "Sam")
    assert f"from {module} import sample" in text
    assert 'def same(self, samples):\n        return sample("same")' in text


def test_a_definition_that_names_itself_is_no_word_of_others() -> None:
    body = 'from typing import TypeVar\n\n\nOldT = TypeVar("OldT")\n\n\nclass OldMLP:\n    def f(self, x: OldT): ...\n'
    assert not converted(body).findings and 'NewT = TypeVar("NewT")' in generated(body)


def test_the_fields_of_a_named_tuple_are_renamed_with_their_uses() -> None:
    text = generated(
        'import x\n\n\nOldPair = x.namedtuple("OldPair", "old, other")\n\n\nclass OldMLP:\n    f = OldPair(1, 2).old\n'
    )
    assert 'NewPair = x.namedtuple("NewPair", "new, other")' in text and "f = NewPair(1, 2).new" in text


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ('    def f(self):\n        return look("old")\n', True),
        ('    def f(self):\n        return look(key="old"), {"old": 1}["old"]\n', True),
        ('    def f(self):\n        return "old"\n', False),  # nothing of the package is used
        ('    model_type = "old"\n    table = look(1)\n', False),
    ],
)
def test_the_models_name_in_quotes_is_told_where_another_module_has_that_word(lines: str, told: bool) -> None:
    found = converted(f"from ...ext import look\n\n\nclass OldMLP:\n{lines}").findings
    assert ("MC328" in [one.code for one in found]) is told


@pytest.mark.parametrize("text", ['"old" + "_" + key', '"old_%s" % key', '"old_{}".format(key)'])
def test_an_attribute_whose_name_is_put_together_is_the_models(text: str) -> None:
    body = f"class OldMLP:\n    def f(self, key):\n        setattr(self, {text}, 1)\n        return self.old_x\n"
    assert "self.new_x" in generated(body) and "old" not in generated(body)
