"""The names that a renamer finds in a text, and the letters by which it searches."""

from __future__ import annotations

import re
import string

from hypothesis import given
from hypothesis import strategies as st

from modular_converter.convert.source import rename
from modular_converter.convert.source.rename import Renamer
from tests.unit.convert.source.test_rename import BIG_BIRD, GPT, starts


@given(
    st.sets(
        st.from_regex(
            r"(?:big_|Big|BIG_|x|\u017f|\u212a)?(?:bird|Bird|BIRD|gpt|GPT|Gpt|s|k)[A-Za-z_]{0,3}", fullmatch=True
        )
    )
)
def test_the_identifiers_that_change_are_those_that_get_another_name(names: set[str]) -> None:
    silk = Renamer("silk", "Silk", "emu", "Emu")
    spelled = {*names, *(f"{name}il{name}" for name in names)}
    for renamer in (BIG_BIRD, GPT, silk):
        assert renamer.changed(spelled) == {name for name in spelled if renamer.name(name) != name}


@given(
    old=st.from_regex(r"[ab][ab1_]{0,3}", fullmatch=True),
    cased=st.from_regex(r"[AaBc][ab1]{0,3}", fullmatch=True),
    text=st.text("aAbBcC1_ .\n-", max_size=20),
)
def test_names_that_repeat_their_letters(old: str, cased: str, text: str) -> None:
    """The search jumps to the next first letter, and no place in between is missed."""
    renamer = Renamer(old, cased, "new", "New")
    assert [match.span() for match in renamer._pattern.finditer(text)] == places_of(text, renamer)


def places_of(text: str, renamer: Renamer) -> list[tuple[int, int]]:
    """The places of a model's name, one character after the other, as the rules say."""
    found: list[tuple[int, int]] = []
    position = 0
    while position < len(text):
        before = text[position - 1 : position]
        form = next((one for one in (renamer.old, renamer.old_cased) if starts(text[position:], one)), "")
        if form and not (before.isascii() and (before.islower() or before.isdigit())):
            found.append((position, position + len(form)))
        position += len(form) if found and found[-1][0] == position else 1
    return found


def test_plain_letters_have_two_forms() -> None:
    characters = "".join(map(chr, range(0x110000)))
    forms = {letter: re.findall(f"(?i:{letter})", characters) for letter in string.ascii_lowercase}
    assert {letter for letter, found in forms.items() if len(found) == 2} == rename._PLAIN_LETTERS
