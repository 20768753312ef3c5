"""Plans in other vocabularies, run by those who own them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from modular_converter.parallel.errors import PlanFormatError
from modular_converter.parallel.plans.emit import to_library, to_torch
from modular_converter.parallel.plans.plan import Plan
from modular_converter.parallel.solve.read_library import from_library


def test_torch_runs_a_derived_plan():
    script = Path(__file__).with_name("torch_styles_script.py")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(script)]
    environment = {**os.environ, "PYTHONPATH": str(script.parents[3]), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.strip() == "equal 4"


def test_what_torch_has_no_style_for_is_named():
    with pytest.raises(PlanFormatError, match=r"torch has no style for a packed_colwise parts=1:1"):
        to_torch(Plan.parse("plan x\nrule a packed_colwise parts=1:1\n"))


def test_the_library_vocabulary_comes_and_goes():
    rules = {"layers.*.q": "colwise", "layers.*.gate_up": "packed_colwise", "layers.*.o": "rowwise"}
    assert to_library(from_library("x", rules)) == rules
    silent = {"layers.*.norm": "replicate", "layers.*.attention": "local_params"}
    assert from_library("x", {**rules, **silent}) == from_library("x", rules)
    with pytest.raises(PlanFormatError, match="where its output is cut is not known"):
        from_library("x", {"layers.*.kv": "mla_kv_a_proj"})
    with pytest.raises(PlanFormatError, match="unknown style 'sideways'"):
        from_library("x", {"a": "sideways"})
