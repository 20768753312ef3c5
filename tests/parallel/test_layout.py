"""Layouts as values: their text, their numbers, and the messages about wrong ones."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modular_converter.parallel.errors import ApplyError
from modular_converter.parallel.layout import Layout, layouts_of


NUMBERS = st.integers(1, 8)


@given(
    st.builds(Layout, dp_replicate=NUMBERS, dp_shard=NUMBERS, tp=NUMBERS)
    | st.builds(Layout, dp_shard=NUMBERS, ep=NUMBERS, pp=NUMBERS)
)
def test_text_and_layout_are_inverse(layout):
    assert Layout.parse(str(layout)) == layout
    layout.check(layout.size)


@given(st.integers(1, 64))
def test_layouts_that_are_named_fit(processes):
    for layout in layouts_of(processes):
        layout.check(processes)


@pytest.mark.parametrize(
    "text, said",
    [
        ("tp2,fsdp2", "'tp2,fsdp2' is none of ddp2, fsdp2, tp2"),
        ("tp", "'tp' is none of"),
        ("zero2", "'zero2' is none of"),
        ("tp2.tp2", "tp twice"),
        ("tp0", "tp=0: give a whole number of 1 or more"),
        ("pp0", "pp=0: give a whole number"),
        ("ep4.tp2", "tp2.ep4: tp shares out experts, too; take tp8 or ep8"),
        ("", "'' is none of"),
    ],
)
def test_a_wrong_text_is_told_with_its_remedy(text, said):
    with pytest.raises(ApplyError, match=said.replace("?", "\\?")):
        Layout.parse(text)


def test_a_layout_of_other_processes_is_told_with_the_right_ones():
    with pytest.raises(ApplyError) as error:
        Layout.parse("tp2.fsdp4").check(4)
    assert str(error.value) == (
        "layout fsdp4.tp2 is 4 x 2 = 8 processes, and there are 4: start 8, or take one of fsdp4, fsdp2.tp2, tp4, "
        "ddp4, ddp2.tp2, ddp2.fsdp2"
    )
