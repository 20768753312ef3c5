"""From a modular file to its classes: neighbours found and renamed, classes merged, findings with their places."""

from __future__ import annotations

import pathlib

import pytest

from modular_converter.convert.inherit.build import BuiltClass, build_classes
from modular_converter.convert.inherit.rename_neighbours import rename_neighbours
from modular_converter.convert.inherit.resolve import open_target, resolve_imports
from modular_converter.convert.source.library import Library
from modular_converter.findings import ConversionError
from modular_converter.settings.load import profile_settings


OLD = """\
from torch import nn

from .configuration_old import OldConfig


def old_scale(x):
    return 2 * x


class OldMLP(nn.Module):
    def forward(self, x, scale=1):
        return old_scale(x) * scale


class OldLayer(OldMLP):
    pass
"""


def build(folder: pathlib.Path, modular: str, old: str = OLD) -> dict[str, BuiltClass]:
    """The classes of `new/modular_new.py` beside `OLD`."""
    for name, text in {"old/modeling_old.py": old, "new/modular_new.py": modular}.items():
        (folder / name).parent.mkdir()
        (folder / name).write_text(text)
    library = Library(profile_settings())
    target = open_target(str(folder / "new/modular_new.py"), library)
    return dict(build_classes(rename_neighbours(resolve_imports(target, library), library), library))


def test_a_class_is_built_from_its_renamed_parent(tmp_path: pathlib.Path) -> None:
    (built,) = build(
        tmp_path, "from ..old.modeling_old import OldMLP\n\n\nclass NewMLP(OldMLP):\n    size = 2\n"
    ).values()
    assert "        return new_scale(x) * scale\n" in built.text
    assert built.neighbour == "..old.modeling_old"
    assert {"new_scale", "size", "nn"} <= built.uses


def test_an_ancestor_in_the_file_hides_a_base_from_elsewhere(tmp_path: pathlib.Path) -> None:
    old = "from torch import nn\n\n\nclass OldRoot({}):\n    {}\n\n\nclass OldBase(OldRoot):\n    pass\n\n\n"
    old += "class OldMLP(OldBase, nn.Module):\n    pass\n"
    modular = "from torch import nn\n\nfrom ..old.modeling_old import OldMLP\n\n\nclass NewMLP(OldMLP):\n"
    modular += "    def half(self):\n        return nn.Module.half(self)\n"
    for folder, member, call in (
        ("a", "size = 1", "super().half()"),
        ("b", "def half(self): ...", "nn.Module.half(self)"),
    ):
        (tmp_path / folder).mkdir()
        built = build(tmp_path / folder, modular, old.format("nn.Module", member))
        assert f"return {call}" in built["NewMLP"].text


def test_imported_functions_go_by_their_new_names_in_the_modular_file(tmp_path: pathlib.Path) -> None:
    modular = "from ..old.modeling_old import old_scale as twice\n\n\nclass NewMLP:\n    def f(self, x):\n        return twice(x)\n"
    assert "return new_scale(x)" in build(tmp_path, modular)["NewMLP"].text


def test_a_mixin_that_inherits_from_a_base_comes_before_it(tmp_path: pathlib.Path) -> None:
    modular = (
        "from torch import nn\n\nfrom ..old.modeling_old import OldMLP\n\n\nclass Extra(nn.Module):\n    extra = 1\n\n\n"
        "class NewMLP(OldMLP, Extra):\n    pass\n"
    )
    assert build(tmp_path, modular)["NewMLP"].text.startswith("class NewMLP(Extra, nn.Module):\n")


def test_warnings_have_their_places_in_the_modular_file(tmp_path: pathlib.Path) -> None:
    modular = (
        "from ..old.modeling_old import OldMLP\n\n\n# Above.\nclass NewMLP(OldMLP):\n"
        "    def forward(self, x, scale=1):\n        return super().forward(x, scale=2)\n"
    )
    (finding,) = build(tmp_path, modular)["NewMLP"].findings
    assert (finding.code, finding.location.line, finding.location.column) == ("MC315", 7, 41)


def test_all_overrides_that_cannot_be_merged_are_reported(tmp_path: pathlib.Path) -> None:
    body = "    def forward(self, y, scale=1):\n        super().forward(y)\n        print(super())\n"
    modular = (
        f"from ..old.modeling_old import OldMLP\n\n\nclass NewMLP(OldMLP):\n{body}\n\nclass NewOther(OldMLP):\n{body}"
    )
    with pytest.raises(ConversionError) as caught:
        build(tmp_path, modular)
    assert {(one.code, one.location.line) for one in caught.value.findings} == {("MC206", 7), ("MC206", 13)}


def test_what_imports_lead_nowhere_is_reported_at_once(tmp_path: pathlib.Path) -> None:
    modular = (
        "from ..odl.modeling_odl import A\nfrom ..old.modeling_old import OldMPL\n\n\nclass B(OldMPL):\n    pass\n"
    )
    with pytest.raises(ConversionError) as caught:
        build(tmp_path, modular)
    assert [one.code for one in caught.value.findings] == ["MC104", "MC105"]


def test_a_mixin_of_another_module_may_not_come_before_the_parent(tmp_path: pathlib.Path) -> None:
    modular = "from ...shared import Extra\nfrom ..old.modeling_old import OldMLP\n\n\nclass NewMLP(Extra, OldMLP):\n    pass\n"
    with pytest.raises(ConversionError) as caught:
        build(tmp_path, modular)
    assert [(one.code, one.location.line, one.location.column) for one in caught.value.findings] == [("MC207", 5, 14)]


@pytest.mark.parametrize(
    ("theirs", "given", "handed"),
    [
        ("self, x, *, y=1, **more", "", "x=x, y=y, **more"),
        ("self, x, y=1", "2, ", "2, y=y"),
        ("self, x, /, y=1", "2, ", "2, y=y"),
        ("self, x, /, y=1", "", "**super_kwargs"),  # no name reaches x
        ("self, x, *rest", "", "**super_kwargs"),
        ("self, x, y=1", "*z, ", "*z, **super_kwargs"),
    ],
)
def test_super_kwargs_in_an_expression_are_the_parents_parameters_where_names_reach_them(
    tmp_path: pathlib.Path, theirs: str, given: str, handed: str
) -> None:
    old = f"class OldMLP:\n    def forward({theirs}):\n        return x\n"
    child = f"    def forward(self, **super_kwargs):\n        return 2 * super().forward({given}**super_kwargs)\n"
    modular = f"from ..old.modeling_old import OldMLP\n\n\nclass NewMLP(OldMLP):\n{child}"
    assert f"return 2 * self.__inherited_forward({handed})\n" in build(tmp_path, modular, old)["NewMLP"].text
