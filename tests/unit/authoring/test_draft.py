"""A modular file of a model that people wrote reads as they would have written it."""

from __future__ import annotations

from pathlib import Path

from tests.unit.authoring.test_modularize import OLD, library_of, modularized


LONG = "".join(f"        x = x * {number} + self.size\n" for number in range(200))
LOGGER = "from utils import logging\n\n\nlogger = logging.get_logger(__name__)\n\n\ndef scale"


def test_a_class_that_shares_one_statement_with_another_is_no_heir(tmp_path: Path) -> None:
    method = "\n    def {}(self, x):\n" + LONG + "        return x\n\n\n__all__"
    old = OLD.replace("\n\n__all__", method.format("forward"))
    new = OLD.replace("\n\n__all__", method.format("forward").replace(" + ", " - ")).replace("Old", "New")
    result = modularized(library_of(tmp_path, old=old, new=new.replace("2020", "2021")), "new")
    assert result.proof is not None and result.proof.round_trips
    assert "class NewModel(nn.Module)" in result.proof.text


def test_a_logger_is_not_imported_from_another_file(tmp_path: Path) -> None:
    old = OLD.replace("def scale", LOGGER).replace("return scale(x)", "logger.info(x)\n        return scale(x)")
    new = old.replace("Old", "New").replace("2020", "2021").replace("logger.info(x)", "logger.info(x + 1)")
    result = modularized(library_of(tmp_path, old=old, new=new), "new")
    assert result.proof is not None and result.proof.round_trips
    assert "logger = logging.get_logger(__name__)" in result.proof.text and "(OldModel)" in result.proof.text


def test_of_two_files_in_the_way_of_each_other_the_shorter_one_stays(tmp_path: Path) -> None:
    """Each comes back alone. With both, one name would have two texts."""
    new = OLD.replace("Old", "New").replace("2020", "2021").replace("x * 2", "x * 3")
    models = library_of(tmp_path, new=new)
    short = "# Copyright 2021 New.\ndef scale(x):\n    return x\n\n\nclass NewProcessor:\n    scaled = scale(1)\n"
    (models / "new/processing_new.py").write_text(short + '\n\n__all__ = ["NewProcessor"]\n')
    result = modularized(models, "new")
    assert [Path(path).name for path in result.left] == ["processing_new.py"]
    assert result.proof is not None and "x * 3" in result.proof.text


def test_a_file_that_no_conversion_gives_does_not_keep_the_file_that_it_is_in_the_way_of(tmp_path: Path) -> None:
    """The class of the processor would be generated into the modeling file, so both differ with it."""
    models = library_of(tmp_path, new=OLD.replace("Old", "New").replace("2020", "2021"))
    parts = "class NewPart:\n    size = 1\n\n\nclass NewProcessor:\n    part = NewPart()\n"
    (models / "new/processing_new.py").write_text(f'# Copyright 2021 New.\n{parts}\n\n__all__ = ["NewProcessor"]\n')
    result = modularized(models, "new")
    assert [Path(path).name for path in result.left] == ["processing_new.py"]
    assert result.proof is not None and "(OldModel)" in result.proof.text
