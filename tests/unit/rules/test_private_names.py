"""Private names of other classes that code writes out (MC327)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from modular_converter.convert.batch import Run
from modular_converter.settings.load import profile_settings


OWN_CLASS = "    def own(self):\n        return __class__ is type(self)\n"


def told(heirs: str, parent: str = "", reader: str = "OldMLP") -> list[str]:
    path = "/private/models/new/modular_new.py"
    texts = {
        "/private/models/old/modeling_old.py": "class OldMLP:\n    def __init__(self):\n        self.__size = 1\n"
        f"{parent}\n\nclass OldUser:\n    def read(self, one):\n        return one._{reader}__size\n",
        path: f"from ..old.modeling_old import OldMLP, OldUser\n\n\n{heirs}\n\nclass NewUser(OldUser):\n    pass\n",
    }
    [conversion] = Run(replace(profile_settings(), formatter="none"), texts, workers=1).convert([path])
    assert not conversion.failed, conversion.findings
    return [one.message.split("`")[1] for one in conversion.findings if one.code == "MC327"]


HEIR = "class NewMLP(OldMLP):\n    pass\n"


@pytest.mark.parametrize(
    ("heirs", "parent"),
    [
        ("class NewGate(OldMLP):\n    pass\n", ""),
        (f"{HEIR}\n\nclass NewGate(OldMLP):\n    pass\n", ""),
        (HEIR.replace("pass", "def __init__(self):\n        super().__init__()\n        self.__size = 2"), ""),
        (HEIR.replace("pass", "size = 2"), OWN_CLASS),
    ],
)
def test_the_attribute_may_be_of_another_class(heirs: str, parent: str) -> None:
    assert told(heirs, parent) == ["_NewMLP__size"]


def test_the_authors_code_is_not_renamed() -> None:
    assert told(f"{HEIR}\n\ndef size(one):\n    return one._OldMLP__size\n\n\nclass NewSize:\n    get = size\n") == [
        "_OldMLP__size"
    ]


def test_the_attribute_is_of_the_class_that_is_named() -> None:
    assert not told(HEIR)
    assert not told(HEIR.replace("pass", "def read(self):\n        return self._OldMLP__size"))
    assert not told("class NewGate(OldMLP):\n    pass\n", reader="OtherMLP")
