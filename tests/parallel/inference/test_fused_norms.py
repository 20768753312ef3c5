"""Norms in one kernel: only where the module's own code computes the same."""

import ast
import collections
import copy
import importlib
import inspect
import re
import types
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
import transformers
from torch import nn

from modular_converter.parallel.inference.fused import _row, fuse_norms, norm_kernel


class Written(nn.Module):
    """A root-mean-square norm, written out; the variants differ in one step each."""

    def __init__(self, width, variant=""):
        super().__init__()
        self.weight, self.eps, self.variant = nn.Parameter(torch.randn(width)), 1e-5, variant

    def forward(self, x):
        kept = x - x.mean(-1, keepdim=True) if self.variant == "centred" else x
        size = kept.float().pow(2).mean(-1, keepdim=True)
        eps = 0.0 if self.variant == "no epsilon" else self.eps
        scale = {"one plus": 1 + self.weight, "two plus": 2 + self.weight}.get(self.variant, self.weight)
        found = scale * (kept * torch.rsqrt(size + eps)).to(x.dtype)
        return found.float() if self.variant == "grown" else found


def test_a_norm_that_agrees_is_fused_and_gives_the_same():
    torch.manual_seed(0)
    model = nn.Sequential(Written(32), nn.Linear(32, 32), Written(32))
    fused = copy.deepcopy(model)
    assert fuse_norms(fused) == 2 and type(fused[0]).__name__ == "Written"
    x = torch.randn(4, 32)
    assert torch.allclose(model(x), fused(x), atol=1e-5)
    assert fused[0](x.bfloat16()).dtype == model[0](x.bfloat16()).dtype


@pytest.mark.parametrize("variant", ["grown", "two plus", "no epsilon"])
@pytest.mark.parametrize("first", ["", "other"])
def test_of_one_class_the_instances_that_differ_are_left_alone(variant, first):
    torch.manual_seed(0)
    norms = [Written(32), Written(32, variant), Written(32)]
    model = nn.Sequential(*(norms[1:] if first else norms), nn.Linear(32, 32))
    fused = copy.deepcopy(model)
    assert fuse_norms(fused) == len(model) - 2
    x = torch.randn(4, 32)
    assert torch.allclose(model(x), fused(x), atol=1e-5)


class Scaled(Written):
    """A norm that is off by a factor, as by rounding or by another formula."""

    def __init__(self, width, factor):
        super().__init__(width)
        self.factor = factor

    def forward(self, x):
        return super().forward(x) * self.factor


@pytest.mark.parametrize("error, agrees", [(3e-6, 1), (3e-5, 0)])
def test_rounding_agrees_and_more_does_not(error, agrees):
    assert fuse_norms(nn.Sequential(Scaled(32, 1 + error))) == agrees


class Grouped(Written):
    """Groups of a fixed width: one group is the whole norm."""

    def __init__(self, width, group):
        super().__init__(width)
        self.group = group

    def forward(self, x):
        split = x.unflatten(-1, (-1, self.group))
        scale = torch.rsqrt(split.pow(2).mean(-1, keepdim=True) + self.eps)
        return self.weight * (split * scale).flatten(-2)


def test_a_norm_is_tried_at_its_own_width():
    assert fuse_norms(nn.Sequential(Grouped(48, 48), Grouped(96, 48), Grouped(32, 32))) == 2


class Stated(Written):
    """What it does is told by a value that cannot be hashed."""

    def __init__(self, width, steps):
        super().__init__(width)
        self.steps = steps

    def forward(self, x):
        return super().forward(x) * len(self.steps)


def test_a_configuration_that_cannot_be_compared_is_tried_each_time():
    assert fuse_norms(nn.Sequential(Stated(16, [1]), Stated(16, [1, 2]), Stated(16, [3]))) == 2


class Along(Written):
    """Of two dimensions it is the norm, of three it runs along another."""

    def forward(self, x):
        return self.weight * x * torch.rsqrt(x.pow(2).mean(1, keepdim=True) + self.eps)


def test_a_norm_along_another_dimension_is_left_alone():
    assert fuse_norms(nn.Sequential(Along(16))) == 0


class Gated(Written):
    def forward(self, x, gate=None):
        return super().forward(x) if gate is None else super().forward(x * gate)


def test_a_norm_that_can_take_more_than_its_input_does():
    torch.manual_seed(0)
    norm, (x, gate) = Gated(16), torch.randn(2, 3, 16)
    fused = nn.Sequential(copy.deepcopy(norm))
    assert fuse_norms(fused) == 1
    for args, named in (((x,), {}), ((x, gate), {}), ((), {"x": x}), ((x,), {"gate": gate})):
        assert torch.allclose(norm(*args, **named), fused[0](*args, **named), atol=1e-5)


def test_hooks_of_a_norm_run_for_its_calls_alone():
    calls = []
    norm = Written(16)
    norm.register_forward_hook(lambda module, args, result: calls.append(args))
    assert fuse_norms(nn.Sequential(norm)) == 1 and not calls
    norm(torch.randn(2, 16))
    assert len(calls) == 1


def test_modules_with_more_than_a_weight_are_left_alone():
    assert fuse_norms(nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 8), nn.Embedding(4, 8), nn.Identity())) == 0


@pytest.mark.parametrize("variant", ["", "one plus", "centred"])
def test_each_form_is_fused_and_rounds_once(variant):
    torch.manual_seed(0)
    norm, x = Written(64, variant), torch.randn(3, 64)
    fused = copy.deepcopy(norm)
    assert fuse_norms(fused) == 1
    assert torch.allclose(norm(x), fused(x), atol=1e-5)
    for kind in (torch.bfloat16, torch.float16):
        rounded = copy.deepcopy(norm).to(kind)
        exact = copy.deepcopy(rounded).float()(x.to(kind).float())
        found = copy.deepcopy(fused).to(kind)(x.to(kind))
        assert found.dtype == kind
        assert bool(((found.float() - exact).abs() <= torch.finfo(kind).eps * exact.abs() + 1e-6).all())


def test_a_weight_that_is_changed_in_any_way_counts_at_once():
    torch.manual_seed(0)
    norm, x = Written(32, "one plus"), torch.randn(2, 32)
    fused = copy.deepcopy(norm)
    assert fuse_norms(fused) == 1
    for one in (norm, fused):
        one(x)
        one.weight.data[:] = 3.0
        one.weight.data.mul_(0.5)
    assert torch.allclose(norm(x), fused(x), atol=1e-5)


def test_a_norm_of_which_an_attribute_is_set_has_its_own_forward_again():
    norm, x = Scaled(32, 1.0), torch.randn(2, 32)
    assert fuse_norms(norm) == 1
    norm.eps = 0.5
    assert torch.allclose(norm(x), F.rms_norm(x, (32,), norm.weight, 0.5), atol=1e-5)
    norm.factor = 2.0
    assert torch.allclose(norm(x), 2 * F.rms_norm(x, (32,), norm.weight, 0.5), atol=1e-5)


class Bare(nn.Module):
    """Without a weight; in groups of a fixed width where there is one."""

    def __init__(self, group=None):
        super().__init__()
        self.eps, self.group = 1e-6, group

    def forward(self, x):
        split = x.float() if self.group is None else x.float().unflatten(-1, (-1, self.group))
        return (split * torch.rsqrt(split.pow(2).mean(-1, keepdim=True) + self.eps)).view(x.shape).to(x.dtype)


def test_a_norm_without_a_weight():
    norm, x = Bare(), torch.randn(2, 3, 48)
    fused = copy.deepcopy(norm)
    assert fuse_norms(fused) == 1
    for one in (x, x.bfloat16()):
        assert torch.allclose(norm(one), fused(one), atol=1e-5)
    assert fuse_norms(nn.Sequential(*map(Bare, (8, 24, 40)))) == 0


ROOT_OF_MEAN = re.compile(r"sqrt\(|torch\.pow\(.*-0\.5\)")


def norms_of_the_library():
    """Code of a class, with its name and decorators taken off -> the names of all classes with this code.

    Classes whose forward takes one tensor, and which write a root of a mean.
    """
    found = collections.defaultdict(list)
    for file in sorted(Path(transformers.__file__).parent.glob("models/*/modeling_*.py")):
        text = file.read_text(encoding="utf-8")
        for segment in re.split(r"\n(?=\S)", text):  # statements of the file, without parsing the rest of it
            name = re.match(r"class (\w+)\((?:torch\.)?nn\.(?:Module|LayerNorm)\):", segment)
            if name is None or "mean(" not in segment or not ROOT_OF_MEAN.search(segment):
                continue
            node = ast.parse(segment).body[0]
            forward = next((one for one in node.body if getattr(one, "name", "") == "forward"), None)
            if forward is not None and len(forward.args.args) == 2 and not forward.args.kwonlyargs:
                node.name = "Norm"
                found[ast.unparse(node)].append(name[1])
    return found


def built(code, width):
    scope = {"torch": torch, "nn": nn, "F": F}
    exec("from __future__ import annotations\n" + code, scope)
    given = inspect.signature(scope["Norm"]).parameters.values()
    empty = (inspect.Parameter.empty, None)
    needed = [one.name for one in given if one.default in empty and "group" not in one.name]
    config = types.SimpleNamespace(eps=1e-6, hidden_size=width)
    norm = scope["Norm"](*(config if name == "config" else width for name in needed if name != "kwargs"))
    for one in norm.parameters():
        nn.init.normal_(one)
    return norm


# Classes that write a root of a mean, and are left alone.
OTHERS = {
    "FalconMambaWeightlessRMSNorm",  # holds a buffer beside
    "HYV4UnweightedRMSNorm",  # the factor alone
    "HYV4VLUnweightedRMSNorm",
    "MuseSparkTextInputScaledRMSNorm",  # the weight before the norm
    "VitDetLayerNorm",  # of the channels of an image
    "PocketTTSFlowLayerNorm",  # in half precision, where the fused operation rounds less
    "GradiumPhononTTSFlowLayerNorm",
}


def test_all_norms_of_the_library_are_fused_and_equal():
    torch.manual_seed(0)
    x, left, forms = torch.randn(2, 5, 48) * 3, set(), collections.Counter()
    for code, names in norms_of_the_library().items():
        norm = built(code, 48).requires_grad_(False)
        fused = copy.deepcopy(norm)
        if not fuse_norms(fused):
            left |= set(names)
            continue
        forms[type(fused).__mro__[1].__name__] += len(names)
        assert torch.allclose(norm(x), fused(x), atol=1e-5, rtol=1e-5), names
        half = [copy.deepcopy(one).bfloat16()(x.bfloat16()) for one in (norm, fused)]
        assert half[0].dtype == half[1].dtype and torch.allclose(*half, atol=2e-2, rtol=2e-2), names
    assert left <= OTHERS
    assert forms["_Scaled"] >= 150 and forms["_OnePlus"] >= 10 and forms["_Centred"] >= 5


def test_a_kernel_that_cannot_be_compiled_or_gives_other_numbers_is_not_used(monkeypatch):
    def plain(x, weight, eps):
        return F.rms_norm(x, x.shape[-1:], 1 + weight, eps)

    def wrong(x, weight, found, width, eps, **more):
        found.fill_(7.0)

    def right(x, weight, found, width, eps, **more):
        found.copy_(plain(x, weight, eps))

    kernels = {
        "missing": {},
        "wrong": collections.defaultdict(lambda: wrong),
        "right": collections.defaultdict(lambda: right),
    }
    found = {}
    for name, compiled in kernels.items():  # in place of Triton, of which a grid selects the launch
        compiler = types.SimpleNamespace(jit=lambda row, made=compiled: made, next_power_of_2=lambda width: width)
        monkeypatch.setattr("modular_converter.parallel.inference.fused.triton", compiler)
        norm_kernel.cache_clear()
        found[name] = norm_kernel(torch.device("cpu"), plain)
    norm_kernel.cache_clear()
    assert found["missing"] is None and found["wrong"] is None
    x, weight = torch.randn(2, 3, 40).transpose(0, 1), torch.randn(40)
    assert torch.allclose(found["right"](x, weight, 1e-6), plain(x, weight, 1e-6))


def test_the_kernel_names_nothing_but_its_arguments_and_triton():
    kernel = ast.parse(inspect.getsource(_row)).body[0]
    names = [one for one in ast.walk(kernel) if isinstance(one, ast.Name)]
    own = {one.arg for one in ast.walk(kernel) if isinstance(one, ast.arg)}
    own |= {one.id for one in names if isinstance(one.ctx, ast.Store)}
    assert {one.id for one in names} - own == {"tl"}


def test_the_kernel_compiles_for_a_gpu_wherever_triton_is():
    triton = pytest.importorskip("triton")
    compiler, backend = (importlib.import_module(f"triton.{one}.compiler") for one in ("compiler", "backends"))
    kinds = {"width": "i32", "eps": "fp32", "block": "constexpr"} | dict.fromkeys(("x", "weight", "found"), "*bf16")
    source = compiler.ASTSource(triton.jit(_row), kinds, {"block": 4096})
    made = triton.compile(source, target=backend.GPUTarget("cuda", 90, 32), options={"num_warps": 8})
    assert "cubin" in made.asm


def test_only_the_epsilon_of_a_fused_norm_may_change():
    model = nn.Sequential(Written(32))
    assert fuse_norms(model) == 1
    assert model[0].may_change("eps") and not model[0].may_change("variant")
    model[0].eps = 0.5
    assert torch.allclose(model[0](x := torch.randn(4, 32)), Written.forward(model[0], x), atol=1e-5)
