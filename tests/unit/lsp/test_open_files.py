"""The texts that an editor holds: what a change converts again."""

from __future__ import annotations

from pathlib import Path

import pytest

from modular_converter.findings import Conversion
from modular_converter.lsp.open_files import OpenFiles, _difference, definitions


OLD = "class OldBlock:\n    def forward(self, x):\n        return x\n"
MID = (
    "from ..old.modeling_old import OldBlock\nfrom ..old.configuration_old import OldConfig\n\n\n"
    "class MidConfig(OldConfig):\n    pass\n\n\n"
    "class MidBlock(OldBlock):\n    def forward(self, x: MidConfig):\n        return x + 1\n"
)
NEW = "from ..mid.modeling_mid import MidBlock\n\n\nclass NewBlock(MidBlock):\n    pass\n"


class CountingFiles(OpenFiles):
    """The files, with the names of the modular files in the order of their conversions."""

    def _converted(self, modular: str) -> Conversion:
        self.order = [*getattr(self, "order", []), Path(modular).name]
        return super()._converted(modular)


@pytest.fixture
def models(tmp_path: Path) -> Path:
    (tmp_path / "pyproject.toml").write_text("[tool.modular-converter]\n")
    models = tmp_path / "lib/models"
    config = "class OldConfig:\n    size = 3\n"
    texts = {"modeling_old.py": OLD, "configuration_old.py": config, "modular_mid.py": MID, "modular_new.py": NEW}
    for name, text in texts.items():
        path = models / name.removesuffix(".py").rpartition("_")[2] / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return models


def test_a_keystroke_converts_each_file_once(models: Path) -> None:
    mid, new = (str(models / name) for name in ("mid/modular_mid.py", "new/modular_new.py"))
    files = CountingFiles()
    files.put(mid, MID)
    files.put(new, NEW)
    assert not files.conversion(mid).failed and not files.conversion(new).failed
    assert len(files.conversion(mid).files) == 2
    files.order = []
    assert files.put(new, NEW.replace("pass", "size = 4")) == [new]
    assert files.order == ["modular_new.py"]
    files.order = []
    assert files.put(mid, MID.replace("pass", "size = 4").replace("x + 1", "x + 2")) == [mid, new]
    assert files.order == ["modular_mid.py", "modular_new.py"]
    assert "x + 2" in files.conversion(new).files[str(models / "new/modeling_new.py")]


def test_a_parent_written_by_hand_converts_its_heirs(models: Path) -> None:
    mid, new, old = (
        str(models / name) for name in ("mid/modular_mid.py", "new/modular_new.py", "old/modeling_old.py")
    )
    files = CountingFiles()
    for path, text in ((mid, MID), (new, NEW), (old, OLD)):
        files.put(path, text)
    files.order = []
    assert files.put(old, OLD.replace("    def", "    kept = 1\n\n    def")) == [mid, new]
    assert files.order == ["modular_mid.py", "modular_new.py"]
    assert "kept = 1" in files.conversion(new).files[str(models / "new/modeling_new.py")]


def test_a_method_is_looked_for_once_in_each_class_of_a_circle(models: Path) -> None:
    """Ten bases each give 10 ** 20 ways by the time that they are 20 classes long."""
    circle = f"class A({'B, ' * 10}): ...\nclass B({'A, ' * 10}): ...\n\n\n"
    (models / "old/modeling_old.py").write_text(circle + OLD.replace("OldBlock:", "OldBlock(A):"))
    mid, files = str(models / "mid/modular_mid.py"), OpenFiles()
    files.put(mid, MID.replace("forward", "run"))
    line = MID[: MID.index("    def forward")].count("\n") + 1
    assert definitions(mid, line, len("    def r") + 1, files) == []
    files.put(mid, MID)
    (place,) = definitions(mid, line, len("    def f") + 1, files)
    assert (Path(place.path).name, place.line) == ("modeling_old.py", circle.count("\n") + 2)


def test_what_a_rename_would_change_otherwise_is_told_by_its_words() -> None:
    assert _difference("class A(B): pass", "class C(B):\n    pass", {"A": "C"}) == ""
    assert _difference("f(size)", "f(width)", {"A": "C"}) == "`size`, `width`"
    assert _difference("x + 1", "x * 1", {}) == "its punctuation"
