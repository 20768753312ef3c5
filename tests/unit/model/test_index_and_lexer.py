"""Cutting a module into statements loses nothing, and agrees with the syntax trees of `ast` and libcst."""

from __future__ import annotations

import ast
import importlib.util
import json
import keyword
import pathlib
from dataclasses import replace

import libcst as cst
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from libcst.metadata import ByteSpanPositionProvider, MetadataWrapper

from modular_converter.model import lexer
from modular_converter.model.index import index_module, index_of_values, values_of_index
from modular_converter.model.module import Role


quick = settings(max_examples=120, deadline=None, derandomize=True, database=None)

STATEMENTS = (
    "import os\n",
    "from a.b import (\n    c,\n    d as e,\n)\n",
    "X = 1  # trailing\n",
    "Y: int = {'k': 1}\n",
    "X['a'] = Z\n",
    "X.b += 1\n",
    "T = '''\n# no comment\ndef no_function(): pass\n'''\n",
    "def f(x, *, y=1):\n    return f'{x!r:>{y}} text {{no}}'\n    # footer\n",
    "@decorate(1)\n# between\n@other\nasync def g(a: 'b'):\n    pass\n",
    "class C(A, b.B, metaclass=M):\n    '''Doc of C.'''\n\n    # in C\n    x = r'\\d' + b'e'.decode() if 0 else 2\n".replace(
        "é", "e"
    ),
    "if available():\n    import z\nelse:\n    z = None\n",
    "try:\n    import q\nexcept ImportError:\n    q = None\n",
    "print(f\"{a['b']} {c:{d}.{e}} {g!s}\" 'plain' rf'\\w{h}')\n",
    "call(1)\n",
    "for i in range(3):\n    j = i\n",
)
pieces = st.one_of(st.sampled_from(STATEMENTS), st.sampled_from(("\n", "\n\n", "# alone é\n")))
sources = st.lists(pieces, max_size=8).map("".join)


def published_files() -> list[pathlib.Path]:
    spec = importlib.util.find_spec("transformers")
    if spec is None or spec.origin is None:
        return []
    models = pathlib.Path(spec.origin).parent / "models"
    chosen = ("llama", "bert", "mamba", "clip", "sam", "gpt2", "vits", "whisper")
    return [models / model / f"modeling_{model}.py" for model in chosen]


def check_split(text: str) -> None:
    module = index_module(text, "m.py")
    assert index_of_values(json.loads(json.dumps(values_of_index(module, text))), text) == replace(module, path="")
    tree = ast.parse(text).body
    has_docstring = bool(tree) and isinstance(tree[0], ast.Expr) and isinstance(tree[0].value, ast.Constant)
    body = list(cst.parse_module(text).body)[1 if has_docstring else 0 :]
    stores = [one for one in module.statements if one.is_store]
    if len(module.statements) == len(body) and not has_docstring:
        # Nothing was moved: the statements are the file.
        joined = module.header + "".join(
            one.lead * bool(index) + one.text + "\n" for index, one in enumerate(module.statements)
        )
        assert not module.statements or text.rstrip().startswith(joined.rstrip())
    names = [one.name for one in module.statements if one.role in (Role.CLASS, Role.FUNCTION)]
    assert names == [node.name.value for node in body if isinstance(node, (cst.ClassDef, cst.FunctionDef))]
    classes = [node for node in body if isinstance(node, cst.ClassDef)]
    assert len([one for one in module.statements if one.role is Role.CLASS]) == len(classes)
    lines = text.split("\n")
    for one in module.statements:
        assert lines[one.line - 1 :][0] == one.text.split("\n")[0]
    assert all(one.role is Role.ASSIGNMENT for one in stores)


@quick
@given(sources)
def test_index_of_generated_sources(text: str) -> None:
    check_split(text)


@quick
@given(st.lists(st.sampled_from(STATEMENTS[:4] + STATEMENTS[6:-1]), min_size=1, max_size=8).map("\n# lead\n\n".join))
def test_lead_and_text_give_the_source_back(text: str) -> None:
    module = index_module(text, "m.py")
    first, *others = module.statements
    joined = module.header + first.text + "".join("\n" + one.lead + one.text for one in others)
    assert joined.rstrip("\n") == text.rstrip("\n")


@pytest.mark.parametrize("path", published_files(), ids=lambda path: path.stem)
def test_published_files(path: pathlib.Path) -> None:
    text = path.read_text(encoding="utf-8")
    check_split(text)
    assert lexer.identifiers(text) - set(keyword.kwlist) == names_of(ast.parse(text))
    check_template_spans(text)


def names_of(tree: ast.AST) -> set[str]:
    """Every identifier that a syntax tree holds."""
    found: set[str] = set()
    for node in ast.walk(tree):
        for attribute in ("id", "attr", "arg", "name", "asname", "module"):
            value = getattr(node, attribute, None)
            if isinstance(value, str):
                found.update(value.split("."))
        if isinstance(node, (ast.Global, ast.Nonlocal)):
            found.update(node.names)
    return found - set(keyword.kwlist) - {"*"}


@quick
@given(sources)
def test_identifiers_are_those_of_the_tree(text: str) -> None:
    assert lexer.identifiers(text) - set(keyword.kwlist) == names_of(ast.parse(text))


@quick
@given(sources)
def test_code_only_keeps_offsets_and_code(text: str) -> None:
    code = lexer.code_only(text)
    assert len(code) == len(text)
    assert all(after in (before, " ") for before, after in zip(text, code, strict=True))
    assert "#" not in code and "'" not in code and '"' not in code


def check_template_spans(text: str) -> None:
    wrapper = MetadataWrapper(cst.parse_module(text), unsafe_skip_copy=True)
    positions = wrapper.resolve(ByteSpanPositionProvider)
    raw = text.encode()
    expected = []
    for node, span in positions.items():
        if isinstance(node, cst.FormattedStringText):
            start = len(raw[: span.start].decode())
            expected.append((start, start + len(raw[span.start : span.start + span.length].decode())))
    assert sorted(span for span in lexer.template_text_spans(text) if span[0] < span[1]) == sorted(expected)


@quick
@given(sources)
def test_template_spans_are_those_of_the_tree(text: str) -> None:
    check_template_spans(text)


def test_stores_follow_their_global() -> None:
    module = index_module("T = {}\nX = 1\n# Said of the store.\nT['a'] = f\nimported.attr = g\n", "m.py")
    assert module.definitions["T"].text == "T = {}\n# Said of the store.\nT['a'] = f"
    assert module.definitions["imported"].is_store


def test_protected_imports_know_their_condition() -> None:
    (one,) = index_module("if is_x_available() and FLAG:\n    from x import y as z\n", "m.py").statements
    assert one.role is Role.PROTECTED_IMPORT
    assert one.condition == {"is_x_available", "FLAG"}
    assert [name.bound for name in one.imports] == ["z"]


def test_the_docstring_of_a_module_is_no_statement() -> None:
    module = index_module('# Licence.\n"""Doc."""\n\nX = 1\n', "m.py")
    assert module.header == "# Licence.\n"
    assert [one.text for one in module.statements] == ["X = 1"]


def test_a_field_directly_behind_a_named_character() -> None:
    text = 'f"\\N{EN DASH}{x}\\N{EN DASH}" + rf"\\N{y}{z}"'
    compile(text, "text", "eval")
    assert lexer.identifiers(text) == {"x", "y", "z"}
