"""Where comments, strings and the parts of f-strings are; what Python 3.12 allows too, whatever runs the tests."""

from __future__ import annotations

import pytest

from modular_converter.model.lexer import code_only, has_template, identifiers, template_text_spans, tokens


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("a # b", "a    "),
        ("a # b\nc", "a    \nc"),
        ("a = 'b' + \"c\"", "a =     +    "),
        ("a = '' + b", "a =    + b"),
        ("a = '''b'c''d\n''' + e", "a = " + " " * 13 + " + e"),
        ('a = """b"c""d\\"""e""" + f', "a = " + " " * 17 + " + f"),
        ("a = 'b\\'c' + d", "a =        + d"),
        ("a = r'b' + Rb'c' + bR'd'", "a =      +       +      "),
        ("is_f'a'", "is_f   "),  # no prefix: the letters end a name
        ("x1f'a'", "x1f   "),
        ("f'a{b}c'", "   {b}  "),
        ("rf'a{b}' + Fr'c{d}' + f\"{e}\"", "    {b}  +     {d}  +   {e} "),
        ("f'''a{\nb # c\n}d'''", "     {\nb    \n}    "),
        ("f'{a!r}{b!s:>{c}}d'", "  {a  }{b  : {c}}  "),
        ("f'{a != b}'", "  {a != b} "),
        ("f'{a:{b}c{d!r}}'", "  {a:{b} {d  }} "),
        ("f'{{a}}{b}'", "       {b} "),
        ("f'{a[\"b\"]}c'", "  {a[   ]}  "),
        ("f'{a[b:c]}{(d, {e: f})}'", "  {a[b:c]}{(d, {e: f})} "),
        ("f'{lambda: a}'", "  {lambda:  } "),  # what follows the colon is a format
        ("f'\\N{DASH}{a}\\{b}'", " " * 10 + "{a} {b} "),
        ("rf'\\N{a}'", "     {a} "),
        ("f'\\'{a}'", "    {a} "),
        ("f'a' 'b'", "        "),
        ("f'{f\"{a}b\"}c'", "  {  {a}  }  "),
        ("f'{a['b']}c'", "  {a[   ]}  "),  # from Python 3.12 on
        ("f'{f'{a}b'}c'", "  {  {a}  }  "),
        ("f'{'a'}{b}'", "  {   }{b} "),
        ("t'{a}b'", "  {a}  "),  # from Python 3.14 on
    ],
)
def test_what_is_code(text: str, code: str) -> None:
    assert code_only(text) == code


@pytest.mark.parametrize("text", ["a = 'b", "a = '''b'", "f'{a", "f'a", "f'{a:b", "f'{a[", "f'{a' + b", "#"])
def test_what_does_not_end_ends_with_the_text(text: str) -> None:
    assert len(code_only(text)) == len(text)
    assert [*tokens(text)][-1].end <= len(text)


def test_tokens_and_spans() -> None:
    text = "x = rb'a' # c\nf'd{e}g'"
    assert [(one.kind, text[one.start : one.end]) for one in tokens(text)] == [
        ("string", "rb'a'"),
        ("comment", "# c"),
        ("template", "f'd{e}g'"),
    ]
    assert [text[start:end] for start, end in template_text_spans(text)] == ["d", "g"]
    nested = "f'{a:>{b}}' f'{f\"c\"}'"
    assert [nested[start:end] for start, end in template_text_spans(nested) if start < end] == [">", "c"]


@pytest.mark.parametrize(
    ("text", "found"),
    [("f'a'", True), ('Rf"a"', True), ("fR'a'", True), ("t'a'", True), ("a = 'b'", False), ("f('a')", False)],
)
def test_what_may_hold_an_f_string(text: str, found: bool) -> None:
    assert has_template(text) is found


def test_identifiers() -> None:
    assert identifiers("é1 = a.b(c=2e5, _d='f') # g\n1.0") == {"é1", "a", "b", "c", "_d"}
