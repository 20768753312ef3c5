"""The import statements of a generated file."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

import pytest

from modular_converter.convert.emit.imports import (
    ImportSource,
    OptionalLibraries,
    names_in_annotations,
    render_imports,
)
from modular_converter.convert.source.rename import absolute_imports, absolute_module
from modular_converter.model.index import index_module


OPTIONAL = OptionalLibraries(("torch", "torchvision"), "...utils", "is_{library}_available")


def source(text: str) -> ImportSource:
    return ImportSource(
        index_module(text, "m.py").statements, lambda name: name, lambda text: text, lambda name: False
    )


def render(
    *texts: str,
    used: Collection[str],
    optional: bool = False,
    siblings: Collection[tuple[str, str]] = (),
    defined: Collection[str] = (),
    keep_conditions: bool = True,
) -> str:
    sources = [source(text) for text in texts]
    return render_imports(sources, used, defined, siblings, OPTIONAL if optional else None, keep_conditions)


def test_only_what_is_used_and_each_once() -> None:
    own, other = "import os\nfrom torch import nn, relu\n", "from torch import nn, gelu\nimport os.path\nimport re\n"
    assert render(own, other, used={"os", "path", "nn", "gelu"}) == (
        "import os\nfrom torch import nn\nfrom torch import gelu\nimport os.path\n"
    )


def test_a_submodule_that_is_not_named_goes_where_its_package_is_imported() -> None:
    assert render("import os\nimport os.path\n", used={"os"}) == "import os\n"
    assert render("import os.path\n", used={"os"}) == "import os.path\n"


def test_an_alias_is_another_name() -> None:
    assert render("import a as b\n", "import a\n", used={"a", "b"}) == "import a as b\nimport a\n"


def test_protected_imports_follow_and_bring_their_condition() -> None:
    text = "if is_x_available():\n    from x import y\nfrom u import is_x_available\n"
    assert render(text, used={"y"}) == "from u import is_x_available\nif is_x_available():\n    from x import y\n"


def test_torch_is_optional_in_some_kinds() -> None:
    text = "import torch\nfrom torchvision import ops\nimport os\n"
    assert render(text, used={"torch", "ops", "os"}, optional=True) == (
        "import os\nfrom ...utils import is_torch_available\nfrom ...utils import is_torchvision_available\n"
        "if is_torch_available():\n    import torch\nif is_torchvision_available():\n    from torchvision import ops\n"
    )


def test_a_file_that_checks_for_torch_itself_loses_the_comments_of_its_imports() -> None:
    own = "# above\nfrom ...utils import is_torch_available\nimport os\nif is_torch_available():\n    import torch\n"
    assert render(own, used={"torch", "os"}, optional=True) == (
        "from ...utils import is_torch_available\nimport os\nfrom ...utils import is_torch_available\n"
        "if is_torch_available():\n    import torch\n"
    )


def test_a_sibling_comes_before_an_ordinary_import_of_that_name() -> None:
    siblings = [(".configuration_new", "NewConfig")]
    assert render("from x import NewConfig\n", used={"NewConfig"}, siblings=siblings) == (
        "from .configuration_new import NewConfig\n"
    )


def test_annotations_that_are_strings_use_names() -> None:
    text = 'def f(x: "list[Cache]"):\n    return "Text"\n'
    used = names_in_annotations(text, {"Cache", "Text"})
    assert "Cache" in used
    assert "Text" not in used


@pytest.mark.parametrize(
    ("text", "is_type"),
    [
        ("def f() -> 'Cache': ...", True),
        ("def f(*a: 'Cache'): ...", True),
        ("x: 'a.Cache | None' = None", True),
        ("x = cast('Cache', y)", True),
        ("x = typing.cast(typ='Cache', val=y)", True),
        ("T = TypeVar('T', bound='Cache')", True),
        ("X = Optional['Cache']", True),
        ("X = typing.Dict[str, 'Cache']", True),
        ("X = table['Cache']", False),
        ("x = print('Cache')", False),
        ("x = f(key='Cache')", False),
        ("x: int = ('Cache')", False),
    ],
)
def test_strings_that_stand_for_types(text: str, is_type: bool) -> None:
    assert ("Cache" in names_in_annotations(f"{text}\n", {"Cache"})) is is_type
    assert names_in_annotations(f"{text}\n", {"Other"}) == set()


def test_relative_modules_become_absolute() -> None:
    package = "lib.models.llama"
    assert absolute_module(".configuration_llama", package) == "lib.models.llama.configuration_llama"
    assert absolute_module("...utils", package) == "lib.utils"
    assert absolute_module("...", package) == "lib"
    assert absolute_module("torch.nn", package) == "torch.nn"


def test_absolute_imports_inside_a_definition() -> None:
    text = 'def f():\n    """from ..x import y"""\n    from ...utils import a\n    from b import c\n'
    assert absolute_imports(text, "lib.models.llama") == text.replace("...utils", "lib.utils")


def test_a_protected_import_with_another_branch_is_kept_whole() -> None:
    from modular_converter.convert.emit.imports import _without_unwanted

    block = "try:\n    import fast\n\n    import faster\nexcept ImportError:\n    fast = None\n"
    assert _without_unwanted(block, {"fast"}, set()) == block
    plain = "if is_fast_available():\n    import fast\n\n    import faster"
    assert _without_unwanted(plain, {"fast"}, set()) == "if is_fast_available():\n    import fast"
    assert _without_unwanted(plain, {"other"}, set()) == ""
    assert _without_unwanted(plain, {"fast", "faster"}, set()) == plain


GUARDED = "if is_x_available() and other:\n    from x import y\nfrom u import is_x_available\nimport other\n"


@pytest.mark.parametrize(
    ("used", "keep", "expected"),
    [
        (
            {"y"},
            False,
            "from u import is_x_available\nimport other\nif is_x_available() and other:\n    from x import y\n",
        ),
        (set(), False, ""),
        (set(), True, "from u import is_x_available\nimport other\n"),
        ({"is_x_available"}, False, "from u import is_x_available\n"),
    ],
)
def test_the_names_of_a_condition_are_imported_with_what_it_guards(used: set[str], keep: bool, expected: str) -> None:
    assert render(GUARDED, used=used, keep_conditions=keep) == expected
    assert render("", GUARDED, used=used, keep_conditions=keep) == expected


RENDERED = {
    "what the file defines": ("from a import b, c\n", {"b", "c"}, {"defined": {"b"}}, "from a import c\n"),
    "a comment above the first of several": (
        "import z\n# of all\nfrom a import b, c as d\nimport e as f, g.h\n",
        {"b", "d", "f", "g"},
        {},
        "# of all\nfrom a import b, c as d\nimport e as f, g.h\n",
    ),
    "a comment above an import that is not used": ("# of it\nfrom a import b\nimport c\n", {"c"}, {}, "import c\n"),
    "submodules that are named": (
        "import a\nimport a.b\nimport a.c.d\n",
        {"a", "b", "c"},
        {},
        "import a\nimport a.b\n",
    ),
    "a submodule of another name": ("import a\nimport a.b as c\n", {"a", "c"}, {}, "import a\nimport a.b as c\n"),
    "a sibling that a protected import takes": (
        "if t():\n    from .s import A\n",
        {"A"},
        {"siblings": [(".s", "A"), (".s", "B")]},
        "from .s import B\nif t():\n    from .s import A\n",
    ),
    "a name that is bound already": (
        "from a import b\nif t():\n    from c import b\n",
        {"b"},
        {},
        "from a import b\n",
    ),
    "the second of two conditions": (
        "if t():\n    from a import b\nif u():\n    from c import b\n    from c import d\n",
        {"b", "d"},
        {},
        "if t():\n    from a import b\nif u():\n    from c import d\n",
    ),
    "a comment above a condition": (
        "import z\n# why\nif t():\n    import a\n",
        {"a"},
        {},
        "# why\nif t():\n    import a\n",
    ),
    "an import of several lines in a condition": (
        "if t():\n    from a import (  # all\n        b,\n        c as d,\n    )\n    import e\n",
        {"b"},
        {},
        "if t():\n    from a import b, c as d\n",
    ),
    "a dotted import in a condition": (
        "if t():\n    import a.b\n    import c\n",
        {"a"},
        {},
        "if t():\n    import a.b\n",
    ),
    "an optional library": (
        "import torch.nn as nn, os\nfrom torchx import y\n",
        {"nn", "os", "y"},
        {"optional": True},
        "from torchx import y\nfrom ...utils import is_torch_available\n"
        "if is_torch_available():\n    import torch.nn as nn, os\n",
    ),
    "a check for an optional library": (
        "if is_torch_available():\n    import torch\n\n    from torch import nn\n\nimport os\n",
        {"torch", "nn", "os"},
        {"optional": True},
        "\nimport os\nfrom ...utils import is_torch_available\n"
        "if is_torch_available():\n    import torch\n    from torch import nn\n",
    ),
    "a check for an optional library and another": (
        "if is_torch_available() and u():\n    import torch\n",
        {"torch"},
        {"optional": True},
        "if is_torch_available() and u():\n    import torch\n",
    ),
}


@pytest.mark.parametrize(("text", "used", "options", "expected"), RENDERED.values(), ids=RENDERED)
def test_imports(text: str, used: set[str], options: dict[str, Any], expected: str) -> None:
    assert render(text, used=used, **options) == expected


def test_names_that_a_source_skips_or_renames() -> None:
    (statement,) = index_module("from ..old import A, OldB, c\n", "m.py").statements
    one = ImportSource(
        [statement],
        lambda name: replace(name, name=name.name.replace("Old", "New")),
        lambda text: text,
        lambda name: name.name == "A",
    )
    assert render_imports([one], {"A", "NewB", "OldB"}, (), (), None, True) == "from ..old import NewB\n"
