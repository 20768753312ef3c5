"""Models of a user's own: shrunk by the arguments of their constructors, sharded by heads or refused with a reason."""

import re
from pathlib import Path

import pytest


torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from modular_converter.parallel import derive  # noqa: E402
from modular_converter.parallel.errors import BuildError, PlanError  # noqa: E402
from modular_converter.parallel.proof.on_ranks import check_model_on_threads  # noqa: E402
from modular_converter.parallel.proof.prove import derive_model, variants_in_use  # noqa: E402
from modular_converter.parallel.tiny.build import Target, build, target_of  # noqa: E402
from tests.parallel import own_models  # noqa: E402


def _target(kind):
    classes = (kind, kind.config_class)
    return Target(kind.__name__, *(f"{one.__module__}.{one.__qualname__}" for one in classes))


def _styles(plan):
    return {rule.pattern: rule.style for rule in plan.rules if ".attention" in rule.pattern}


@pytest.mark.parametrize(
    "kind",
    [
        own_models.OwnModel,
        own_models.NestedModel,
        own_models.CuredFusedModel,
        own_models.CuredSlopesModel,
        own_models.GroupedModel,
    ],
)
def test_attention_is_sharded_by_heads_without_a_gather(kind):
    found = derive_model(_target(kind))
    assert found.verdict.passed and found.small.model.num_parameters() < 1e6
    styles = _styles(found.plan)
    assert styles["layers.*.attention.o"] == "rowwise" and "colwise_gather_output" not in styles.values()
    assert found.hindrances == []


@pytest.mark.parametrize(
    ("kind", "reason", "line"),
    [
        (own_models.WrittenModel, "a size in a view", "c // self.heads"),
        (own_models.FusedModel, "a split size", "split(x.shape[-1], dim=-1)"),
        (own_models.SlopesModel, "a buffer: layers.0.attention.slopes", "self.slopes[None"),
        (own_models.OfTorchModel, "attention of torch", "self.inner(x, x, x"),
    ],
)
def test_the_line_that_keeps_attention_whole_is_named(kind, reason, line):
    """The twins above show that the advice cures it."""
    found = derive_model(_target(kind))
    assert found.verdict.passed and "rowwise" not in _styles(found.plan).values()
    (hindrance,) = found.hindrances
    assert hindrance.reason.startswith(reason) and hindrance.advice
    path, _, number = hindrance.site.rpartition(":")
    with open(path, encoding="utf-8") as file:
        assert line in file.read().splitlines()[int(number) - 1]


def test_a_value_that_a_constructor_needs_is_asked_for():
    with pytest.raises(BuildError, match="'width'(.|\n)*--set width="):
        build(_target(own_models.NeedyModel))
    assert build(_target(own_models.NeedyModel), {"width": 64}).model.config.width == 64


def test_the_plan_of_a_plain_module_holds_for_a_larger_one():
    module = own_models.PlainNet()
    before, state = [p.clone() for p in module.parameters()], torch.get_rng_state()
    found = derive(module, {"ids": torch.randint(0, 40, (2, 9), generator=torch.Generator().manual_seed(0))})
    assert _styles(found.plan)["layers.*.attention.o"] == "rowwise" and found.verdict.evidence.draws == 2
    assert all(torch.equal(a, b) for a, b in zip(before, module.parameters()))
    assert torch.equal(state, torch.get_rng_state())
    larger = own_models.PlainNet(width=96, heads=8, depth=3)
    ids = torch.randint(0, 40, (3, 17), generator=torch.Generator().manual_seed(1))
    assert check_model_on_threads(larger, found.plan, {"ids": ids}, 4).passed


def test_what_runs_in_a_fast_path_alone_is_no_use_and_code_of_torch_has_no_line():
    layer = torch.nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
    module = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
    found = derive(module, {"src": torch.randn(2, 9, 32)})
    (hindrance,) = found.hindrances
    assert hindrance.reason == "attention of torch" and hindrance.site == "" and "nn.Linear layers" in hindrance.advice
    uses = [use.ratio for use in variants_in_use(found.target, found.small, {})]
    assert "src_key_padding_mask" in " ".join(uses) and "is_causal" not in " ".join(
        uses
    )  # which needs a mask beside it


def test_the_example_of_the_page_runs(capsys):
    page = (Path(__file__).parents[3] / "docs" / "plans.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```python\n(.*?)```", page.partition("## Models of your own")[2], re.DOTALL)
    exec(compile(example, "docs/plans.md", "exec"), {"__name__": "example"})
    said = capsys.readouterr().out
    assert "rule qkv packed_colwise parts=1:1:1\nrule out rowwise\n" in said and "2 draws of weights" in said


def test_inputs_of_a_plain_module_may_come_in_order():
    ids = torch.zeros(2, 5, dtype=torch.long)
    assert derive(own_models.PlainNet(), [ids, 0.5]).small.inputs.keys() == {"ids", "scale"}
    with pytest.raises(BuildError, match="PlainNet: these inputs do not fit its forward"):
        derive(own_models.PlainNet(), [ids, 0.5, ids])


def test_plain_modules_that_cannot_be_derived_are_refused():
    with pytest.raises(BuildError, match="on the CPU"):
        derive(own_models.PlainNet().to("meta"), {})
    with pytest.raises(BuildError, match="30 M parameters"):
        derive(own_models.PlainNet(width=2048), {})
    with pytest.raises(PlanError, match="forward fails"):
        derive(own_models.PlainNet(), {"ids": torch.zeros(2)})


def test_the_command_says_how_to_derive_a_plain_module(tmp_path):
    said = r"PlainNet is a plain nn.Module: from Python, modular_converter.parallel.derive\(PlainNet"
    with pytest.raises(BuildError, match=said):
        target_of("tests.parallel.own_models.PlainNet")
    (tmp_path / "modeling_plainer.py").write_text("from torch import nn\n\n\nclass PlainNet(nn.Module):\n    pass\n")
    for name in ("modeling_plainer.py", "modeling_plainer.py:PlainNet"):
        with pytest.raises(BuildError, match=said):
            target_of(str(tmp_path / name))
