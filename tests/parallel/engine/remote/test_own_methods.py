"""Methods, properties and modules of a model on ranks see whole weights, as on one device."""

import copy
import pickle

import pytest
import torch
from torch.nn.utils import prune


pytest.importorskip("transformers")

from modular_converter.parallel import parallelize  # noqa: E402
from modular_converter.parallel.engine.remote.proxy import _runs_there  # noqa: E402
from modular_converter.parallel.errors import ApplyError, PlanError  # noqa: E402
from modular_converter.parallel.proof.judge import relative_error  # noqa: E402
from tests.parallel.conveniences import Handy, handy  # noqa: E402


IDS = torch.arange(1, 19).view(2, 9)


@pytest.fixture(scope="module")
def pair(ranks):
    one = handy()
    model = parallelize(copy.deepcopy(one), session=ranks)
    assert any(piece.dim >= 0 for piece in model._placement.pieces.values())
    yield one, model
    model._placement.end()


READS = {
    "numbers of parameters": lambda m: (m.get_num_params(), m.num_parameters(), m.get_memory_footprint()),
    "a string": lambda m: m.summary(),
    "a bias": lambda m: m.first_bias(),
    "truth": lambda m: (m.zero_bias(), m.is_wide()),
    "a sum of squares": lambda m: m.l2(),
    "a property": lambda m: m.largest,
    "dicts, lists and dataclasses": lambda m: m.facts(),
    "a generator": lambda m: list(m.rows()),
    "rows of the embedding": lambda m: m.similar(IDS[0]),
    "a method of a module": lambda m: [(block.mlp.width(), block.mlp.bias_norm) for block in m.layers],
    "a weight": lambda m: m.get_input_embeddings().weight[3:5] * 2,
    "a weight's sizes": lambda m: [(tuple(p.shape), p.dtype, p.numel(), p.stride(), p.ndim) for p in m.parameters()],
    "numpy": lambda m: m.head.weight.detach().numpy()[:3].tolist(),
    "a sum of numpy": lambda m: float((m.head.weight.detach().numpy() * 2 + 1).sum(axis=0).max()),
    "text of a parameter": lambda m: repr(m.head.weight).split()[:2],
    "a parameter of a weight": lambda m: torch.nn.Parameter(m.head.weight),
    "data": lambda m: m.head.weight.data.abs().mean(),
    "the memory": lambda m: (m.head.weight.untyped_storage().nbytes(), len(m.head.weight.untyped_storage())),
    "a copy of a weight": lambda m: copy.deepcopy(m.layers[1].mlp.up.weight),
    "a pickled weight": lambda m: pickle.loads(pickle.dumps(m.layers[1].mlp.up.bias)),
    "text of a weight": lambda m: str(m.layers[0].attn.q.bias.data),
    "functions of torch": lambda m: torch.stack([torch.linalg.norm(b.attn.o.weight) for b in m.layers]),
    "a loop of one's own": lambda m: m.generate(IDS, 3),
    "a number": lambda m: torch.tensor(m.score(IDS)),
    "modules": lambda m: m.hidden(IDS),
    "a module": lambda m: m.layers[0](m.wte(IDS)),
    "a module's forward": lambda m: m.layers[0].mlp.forward(m.norm(m.wte(IDS))),
    "a list of modules": lambda m: torch.nn.Sequential(*m.layers, m.norm)(m.wte(IDS)),
    "counts": lambda m: m.count() > 0,
}


def same(one, other):
    if isinstance(one, torch.Tensor):
        assert one.shape == other.shape and one.dtype == other.dtype and one.device == other.device
        assert not one.is_floating_point() and torch.equal(one, other) or relative_error(other, one) < 1e-5
    elif isinstance(one, (list, tuple)):
        assert len(one) == len(other)
        for pair in zip(one, other):
            same(*pair)
    elif isinstance(one, dict):
        same(list(one.items()), list(other.items()))
    elif hasattr(one, "__dict__"):
        same(vars(one), vars(other))
    else:
        assert one == other


@pytest.mark.parametrize("name", READS)
def test_what_the_models_own_code_reads_is_whole(pair, name):
    with torch.no_grad():
        same(*(READS[name](model) for model in pair))


def write_in_place(model):
    model.head.weight[0] = 1.0


WRITES = {
    "an entry": write_in_place,
    "a row": lambda m: m.head.weight[0].zero_(),
    "a function": lambda m: torch.nn.init.zeros_(m.head.weight),
    "a function by name": lambda m: torch.nn.init.normal_(m.head.weight),
    "a constant": lambda m: torch.nn.init.constant_(m.head.weight, 1.0),
    "the range of a layer": lambda m: torch.nn.init.kaiming_uniform_(tensor=m.head.weight),
    "a cut normal": lambda m: torch.nn.init.trunc_normal_(m.head.weight),
    "an orthogonal matrix": lambda m: torch.nn.init.orthogonal_(m.head.weight),
    "a sparse matrix": lambda m: torch.nn.init.sparse_(m.head.weight, 0.5),
    "data": lambda m: m.head.weight.data.mul_(2),
    "new data": lambda m: setattr(m.head.weight, "data", torch.zeros(304, 64)),
    "a row of data": lambda m: m.head.weight.data[0].fill_(1.0),
    "out": lambda m: torch.add(torch.ones(304, 64), 1.0, out=m.head.weight.data),
    "the operator": lambda m: m.layers[0].mlp.up.bias.__iadd__(1.0),
    "many": lambda m: torch._foreach_mul_(list(m.parameters()), 2.0),
    "a new parameter": lambda m: m.crop(8),
    "another type": lambda m: m.head.half(),
    "other memory": lambda m: m.head.weight.set_(torch.ones(304, 64)),
    "other memory of data": lambda m: m.head.weight.data.set_(torch.ones(304, 64)),
    "the memory": lambda m: m.head.weight.untyped_storage().fill_(1),
    "the state of a part": lambda m: m.layers[0].load_state_dict(m.layers[0].state_dict()),
    "a parametrization": lambda m: torch.nn.utils.parametrizations.weight_norm(m.head),
    "a cut weight": lambda m: prune.l1_unstructured(m.head, "weight", 0.3),
    "a parameter of it": lambda m: torch.nn.Parameter(m.head.weight).mul_(2),
    "numpy": lambda m: m.head.weight.detach().numpy().__setitem__(0, 0.0),
    "a view in numpy": lambda m: m.head.weight.detach().numpy().T[0].fill(0.0),
    "a function of numpy": lambda m: m.head.weight.detach().numpy().__imul__(2.0),
    "an entry of the memory": lambda m: m.head.weight.untyped_storage().__setitem__(0, 1),
}


@pytest.mark.parametrize("name", WRITES)
def test_writing_to_a_weight_is_refused(pair, name):
    with pytest.raises(PlanError, match=r"reach the ranks|on the ranks.*\.cpu\(\)"), torch.no_grad():
        WRITES[name](pair[1])


def test_a_weight_has_no_address(pair):
    for read in (lambda m: m.head.weight.data_ptr(), lambda m: m.head.weight.untyped_storage().data_ptr()):
        with pytest.raises(PlanError, match=r"has no address here: take `is`.*clone\(\)"):
            read(pair[1])


@pytest.mark.parametrize("name", ["register_hook", "register_post_accumulate_grad_hook"])
def test_a_weight_takes_no_hook_on_its_gradient(pair, name):
    with pytest.raises(PlanError, match="runs without gradients"):
        getattr(pair[1].head.weight, name)(lambda _: None)


BACKWARDS = {
    "a result": lambda m: m(IDS).logits.sum(),
    "a result that was written": lambda m: m(IDS).logits.mul_(2).sum(),
    "a module's result": lambda m: m.wte(IDS).sum(),
    "a weight": lambda m: m.head.weight.norm(),
    "with a term of one's own": lambda m: m(IDS).logits.sum() + torch.ones((), requires_grad=True),
}


@pytest.mark.parametrize("name", BACKWARDS)
def test_results_require_gradients_as_on_one_device_and_a_backward_is_refused(pair, name):
    one, there = (BACKWARDS[name](model) for model in pair)
    assert one.requires_grad and there.requires_grad
    with pytest.raises(PlanError, match="runs without gradients; to train, start your script with torchrun"):
        there.backward()


def test_gradients_of_weights_on_the_ranks_are_refused(pair):
    model = pair[1]
    for unused in (False, True):
        with pytest.raises(PlanError, match="runs without gradients; to train, start your script with torchrun"):
            torch.autograd.grad(model(IDS).logits.sum(), list(model.parameters()), allow_unused=unused)


def test_without_weights_that_are_trained_results_require_no_gradients(pair):
    trained = list(pair[1].parameters())
    for one in trained:
        one.requires_grad = False
    try:
        assert not pair[1](IDS).logits.requires_grad and not pair[1].head.weight.norm().requires_grad
        assert pair[1].layers[0](torch.ones(1, 2, 64, requires_grad=True)).requires_grad
    finally:
        for one in trained:
            one.requires_grad = True


def test_a_module_with_a_share_as_its_result_is_refused_and_the_ranks_go_on(pair):
    one, model = pair
    for _ in range(2):
        with pytest.raises(ApplyError, match=r"each rank's own share, \(2, 9, 128\) of \(2, 9, 256\)"):
            model.inner(torch.ones(2, 9, 64))
    with torch.no_grad():
        assert relative_error(model(IDS).logits, one(IDS).logits) < 1e-5


def test_a_module_that_needs_a_share_as_its_input_is_refused_and_the_ranks_go_on(pair):
    one, model = pair
    with pytest.raises(PlanError, match="this Linear computes with a share on each rank.*call the module around it"):
        model.layers[0].mlp.down(torch.ones(2, 9, 256))
    assert model._placement.divides("layers.0") and not model._placement.divides("layer")
    with torch.no_grad():
        assert relative_error(model(IDS).logits, one(IDS).logits) < 1e-5


def test_a_string_and_a_truth_of_forward_that_depend_on_a_share_are_refused(pair):
    with pytest.raises(ApplyError, match="said is each rank's own share, 128 wide of 256 wide"):
        pair[1](IDS, said="size")


def test_a_function_that_cannot_be_imported_is_refused_and_the_ranks_go_on(pair):
    one, model = pair
    with pytest.raises(PlanError, match="define functions and classes at the top of a module"):
        model(IDS, said=lambda: None)
    with torch.no_grad():
        assert relative_error(model(IDS).logits, one(IDS).logits) < 1e-5


def test_switching_off_what_is_off_on_the_ranks_changes_nothing(pair):
    one, model = pair
    model.gradient_checkpointing_disable()
    with torch.no_grad():
        assert relative_error(model(IDS).logits, one(IDS).logits) < 1e-5


def test_a_module_says_that_its_model_is_gone(ranks):
    inner = parallelize(handy(num_layers=1), session=ranks).layers[0]
    with pytest.raises(PlanError, match="is gone"):
        inner(torch.ones(1, 2, 64))
    with pytest.raises(PlanError, match="is gone"):
        inner.mlp.up.weight.sum()


def test_where_generate_runs():
    class Prepares(Handy):
        def generate(self, *args):
            return super().generate(*args)

    from transformers import LlamaForCausalLM, WhisperForConditionalGeneration

    there = [LlamaForCausalLM, WhisperForConditionalGeneration, Prepares, Handy, torch.nn.Linear]
    assert [_runs_there(kind, "generate") for kind in there] == [True, True, True, False, False]
