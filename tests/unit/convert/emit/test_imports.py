"""The import statements of a generated file."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from modular_converter.convert.emit.imports import (
    ImportSource,
    OptionalLibraries,
    names_in_annotations,
    render_imports,
)
from modular_converter.convert.source.index import index_module
from modular_converter.convert.source.rename import absolute_imports, absolute_module


OPTIONAL = OptionalLibraries(("torch", "torchvision"), "...utils", "is_{library}_available")


def source(text: str) -> ImportSource:
    return ImportSource(
        index_module(text, "m.py").statements, lambda name: name, lambda text: text, lambda name: False
    )


def render(
    *texts: str, used: Collection[str], optional: bool = False, siblings: Collection[tuple[str, str]] = ()
) -> str:
    return render_imports([source(text) for text in texts], used, (), siblings, OPTIONAL if optional else None, True)


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
