"""Names of globals are changed where Python looks them up in the module, and nowhere else."""

from __future__ import annotations

import ast

import pytest

from modular_converter.convert.source.rename import rename_globals


@pytest.mark.parametrize(
    "text",
    [
        "def f(x, scale=OLD): return scale",
        "def f(x, *, OLD=1): return OLD + g(OLD=OLD).OLD",
        "def f(x):\n    for OLD in x:\n        pass\n    return OLD",
        "def f(x):\n    def g():\n        return OLD(x)\n    return g, lambda OLD: OLD, lambda y: OLD",
        "def f(x):\n    return [OLD for OLD in x], [OLD(y) for y in x], {OLD: 1 for z in OLD}",
        'def f(x):\n    return f"{OLD} {x!r:>{OLD}} OLD", "OLD", x.OLD',
        "def f(x):\n    global OLD\n    OLD = x\n    return OLD",
        "def f(x):\n    global other, OLD\n    OLD = x\n\n\ndef g(OLD):\n    return OLD",
        "def f(x):\n    import y as OLD\n    return OLD",
        "def f(x):\n    try:\n        return x\n    except E as OLD:\n        return OLD",
        "@OLD\nclass A(OLD):\n    OLD: int = OLD\n    def f(self, x: OLD) -> OLD:\n        return self.OLD, OLD",
        "TABLE = {'OLD': OLD, **OLD}  # OLD",
        "def f(x):\n    (OLD := x)\n    return OLD",
        "def f(x):\n    if (y := OLD):\n        return y",
        "def f(x):\n    return OLD(x, OLD=x)",
    ],
)
def test_python_looks_the_new_name_up(text):
    renamed = rename_globals(text, {"OLD": "NEW"})
    compile(renamed, "<renamed>", "exec")
    assert lookups(renamed) == {("NEW" if name == "OLD" else name) for name in lookups(text)}
    assert locals_of(renamed) == locals_of(text)
    assert keywords_of(renamed) == keywords_of(text)


def lookups(text: str) -> set[str]:
    """The names that compiled code looks up in the module, in all of its functions."""
    import dis

    found, waiting = set(), [compile(text, "<text>", "exec")]
    while waiting:
        code = waiting.pop()
        waiting += [one for one in code.co_consts if hasattr(one, "co_code")]
        for one in dis.get_instructions(code):
            if one.opname in ("LOAD_GLOBAL", "LOAD_NAME", "STORE_GLOBAL") and not str(one.argval).startswith("__"):
                found.add(one.argval)
    return found


def keywords_of(text: str) -> list[str | None]:
    return [node.arg for node in ast.walk(ast.parse(text)) if isinstance(node, ast.keyword)]


def locals_of(text: str) -> list[tuple[str, ...]]:
    found, waiting = [], [compile(text, "<text>", "exec")]
    while waiting:
        code = waiting.pop()
        waiting += [one for one in code.co_consts if hasattr(one, "co_code")]
        found.append((*code.co_varnames, *code.co_cellvars))
    return sorted(found)


def test_a_text_without_the_name_is_returned_as_it_is():
    text = "x  =   1 # odd \n"
    assert rename_globals(text, {"OLD": "NEW"}) is text


def test_what_libcst_cannot_parse_is_a_syntax_error():
    with pytest.raises(SyntaxError):
        rename_globals("def f(OLD): (", {"OLD": "NEW"})
