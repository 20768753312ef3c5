"""Names that a module binds several times: the last definition alone is generated, and imports stand above all of it."""

from __future__ import annotations

import pytest

from tests.unit.convert.examine.test_report import convert


OWN = "from ..old.modeling_old import OldMLP\n"
CLASS = "class {}:\n    def own(self, x):\n        return {}(x)\n"


def found(folder, above, read="by"):
    """The findings about a modular file with statements above the code that reads a name."""
    modular = f"{OWN}{above}\n\n" + CLASS.format("NewMLP(OldMLP)", read)
    told = (one for one in convert(folder, modular).findings if one.code in ("MC205", "MC338"))
    return [(one.code, one.location.line, one.message) for one in told]


@pytest.mark.parametrize(
    ("above", "is_told"),
    [
        ("import os\nimport os as os", False),
        ("import os\nimport os.path", False),
        ("import sys as os\nimport os", True),
        ("import os\nfrom posix import path as os", True),
        ("from os import path as os\nfrom os import path as os", False),
        ("from os import path as os\nfrom os import sep as os", True),
        ("from a import os\nfrom b import os\nfrom a import os", False),
        ("try:\n    from a import os\nexcept ImportError:\n    os = None", False),
        ("os = None\nimport os", True),
        ("import os\nos = None", False),
    ],
)
def test_a_name_that_is_imported_twice(tmp_path, above, is_told):
    codes = [(code, line) for code, line, _ in found(tmp_path, above, read="os")]
    assert codes == ([("MC205", 1 + len(above.splitlines()))] if is_told else [])


def test_what_a_default_reads_is_the_last_definition_above_it(tmp_path):
    above = "OTHER = 1\nSIZE = 2\nSIZE = 3\ndef by(x, size=SIZE):\n    return x\nSIZE = 4"
    [(code, line, message)] = found(tmp_path, above)
    assert (code, line) == ("MC338", 5)
    assert "would use `SIZE` of modular_new.py:7, not of modular_new.py:4" in message


@pytest.mark.parametrize(
    "above",
    [
        "SIZE = 2\ndef by(x, size=SIZE):\n    return x\nOTHER = 4",
        "OTHER = 2\ndef by(x, size=SIZE):\n    return x\nSIZE = 4",
        "SIZE = 2\ndef by(x):\n    return SIZE\nSIZE = 4",
    ],
)
def test_names_that_mean_the_same_in_the_generated_file(tmp_path, above):
    assert found(tmp_path, above) == []
