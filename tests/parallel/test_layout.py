"""Layouts as values: their text, their numbers, and the messages about wrong ones."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from modular_converter.parallel.errors import ApplyError
from modular_converter.parallel.layout import Layout, Training, floating_type, layouts_of


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
        ("tp2,fsdp2", "'tp2,fsdp2' is none of ddp2, fsdp2, cp2, tp2"),
        ("tp", "'tp' is none of"),
        ("two2", "'two2' is none of"),
        (
            "zero1",
            "'zero1' is no part of a layout: ZeRO 1 .* is fsdp .* such as fsdp2, and training=Training.reshard=Fal",
        ),
        ("zero2", "ZeRO 2 .* such as fsdp2, and training=Training.reshard=False"),
        ("ZeRO-3", "'ZeRO-3' .*ZeRO 3 .* is fsdp with your number of processes, such as fsdp2$"),
        ("zero0.tp2", "'zero0' .*such as ddp2$"),
        ("zero4", "'zero4' is none of"),
        ("dp4", "'dp4' is no part of a layout: data parallelism is ddp4 .* or fsdp4"),
        ("tp2.dp", "'dp' is no part of a layout: data parallelism is ddp2 .* or fsdp2"),
        ("hsdp2", "are ddp2.fsdp2"),
        ("mp2", "is tp2 .* or pp2"),
        ("sp2", "is cp2, or between the blocks of a layer tp2 with training=Training.sequence_parallel=True"),
        ("cp2.pp2", "cp2.pp2: cp goes together with ddp, fsdp and tp alone"),
        ("cp2.ep2", "cp2.ep2: cp goes together with ddp, fsdp and tp alone"),
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
        "ddp4, ddp2.tp2, ddp2.fsdp2, pp4, tp2.pp2"
    )
    with pytest.raises(ApplyError, match="and there are 2: start 4, or take one of fsdp2, tp2, ddp2, pp2$"):
        Layout.parse("fsdp2.tp2").check(2)


@pytest.mark.parametrize("word", ["bf16", "bfloat16", "torch.bfloat16", "BF16", torch.bfloat16])
def test_a_type_of_computation_is_that_of_its_word(word):
    assert Training(compute_type=word) == Training(compute_type=torch.bfloat16)
    assert Training(compute_type=word).computes_in is torch.bfloat16


@pytest.mark.parametrize(
    "options, said",
    [
        ({"compute_type": "bf61"}, "compute_type='bf61': give a floating type, such as torch.bfloat16 or 'bf16'"),
        ({"compute_type": "int8"}, "compute_type='int8': give a floating type"),
        ({"compute_type": "nn"}, "compute_type='nn': give a floating type"),
        ({"compute_type": 16}, "compute_type=16: give a floating type"),
        ({"compute_type": torch.float8_e4m3fn}, "layers compute in no such type"),
        ({"recompute": "full"}, "recompute='full'.: give True or False"),
        ({"reshard": 1}, "reshard=1.: give True or False"),
        ({"chunks": 0}, "chunks=0.: give a whole number of 1 or more"),
        ({"chunks": "8"}, "chunks='8'.: give a whole number"),
        ({"chunks": True}, "chunks=True.: give a whole number"),
        ({"schedule": 1}, "schedule=1.: give a name"),
    ],
)
def test_options_are_checked_where_they_are_made(options, said):
    with pytest.raises(ApplyError, match=said):
        Training(**options)


@pytest.mark.parametrize(
    "word, kind",
    [("fp16", torch.float16), ("half", torch.float16), ("float", torch.float32), ("double", torch.float64)],
)
def test_words_for_types(word, kind):
    assert floating_type(word, "dtype") is kind


def test_options_need_no_torch():
    code = "import sys\nfrom modular_converter.parallel import Training, Layout\nTraining(recompute=True, chunks=2)\n"
    code += "Layout.parse('fsdp2')\nassert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
