"""Every generated file of the published `transformers` package, byte for byte."""

from __future__ import annotations

import difflib
import importlib.util
import os
from importlib.metadata import version

import pytest

from modular_converter.convert.batch import Run
from modular_converter.files.arguments import discover
from modular_converter.files.write import is_generated
from modular_converter.findings import Conversion, Severity
from modular_converter.settings.load import profile_settings


MODELS = os.path.join(os.path.dirname(importlib.util.find_spec("transformers").origin), "models")


@pytest.fixture(scope="module")
def conversions() -> list[Conversion]:
    assert version("transformers") == "5.24.0", "the corpus is that of transformers 5.24.0"
    assert version("ruff") == "0.14.10", "the corpus was formatted by ruff 0.14.10"
    return Run(profile_settings()).convert(discover([MODELS], None).paths)


@pytest.fixture(scope="module")
def published() -> dict[str, str]:
    texts = {}
    for folder, _, names in os.walk(MODELS):
        for name in names:
            if name.endswith(".py") and not name.startswith("modular_"):
                path = os.path.join(folder, name)
                with open(path, encoding="utf-8", newline="") as file:
                    text = file.read()
                if is_generated(text).startswith("src/transformers/models/"):
                    texts[path] = text
    return texts


def test_every_modular_file_converts(conversions):
    failed = [conversion.path for conversion in conversions if conversion.failed]
    assert len(conversions) == 339
    assert not failed


def test_every_generated_file_is_byte_identical(conversions, published, record_property):
    generated = {path: text for conversion in conversions for path, text in conversion.files.items()}
    different = [path for path, text in published.items() if generated.get(path) != text]
    count = f"{len(published) - len(different)} of {len(published)} generated files byte-identical"
    record_property("summary", count)  # printed at the end of the run, see conftest.py
    assert len(published) == 689
    assert not set(generated) - set(published)
    assert not different, _first_difference(different[0], published, generated)


def test_no_error_and_no_undefined_name(conversions):
    findings = [finding for conversion in conversions for finding in conversion.findings]
    assert not [str(finding) for finding in findings if finding.severity is Severity.ERROR]
    assert not [str(finding) for finding in findings if finding.rule.name == "undefined-name"]


def _first_difference(path, published, generated):
    lines = difflib.unified_diff(published[path].splitlines(), generated.get(path, "").splitlines(), lineterm="")
    return "\n".join([path, *list(lines)[:40]])
