"""What the caller changes beside the weights reaches the ranks or is refused; what a call stores on modules comes back."""

import copy

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode


pytest.importorskip("transformers")

import tests.parallel.conveniences as code  # noqa: E402
from modular_converter.parallel import parallelize  # noqa: E402
from modular_converter.parallel.errors import ApplyError, PlanError  # noqa: E402
from modular_converter.parallel.proof.judge import relative_error  # noqa: E402
from tests.parallel.conveniences import handy  # noqa: E402
from tests.parallel.troubled import PLAN, Troubled  # noqa: E402


IDS = torch.arange(1, 19).view(2, 9)


@pytest.fixture(scope="module")
def pair(ranks):
    one = handy(dropout=0.3)
    model = parallelize(copy.deepcopy(one), session=ranks)
    yield one, model
    model._placement.end()


def equal(pair, tolerance=1e-5):
    """Whether one device and the ranks give the same answer, also where they draw random numbers."""
    found = []
    for model in pair:
        torch.manual_seed(3)
        with torch.no_grad():
            found.append(model(IDS).logits)
    return found[0].dtype == found[1].dtype and relative_error(found[1].float(), found[0].float()) < tolerance


def new_inside(model):
    model.layers[1].mlp.options["gain"] = 3.0


def an_attribute_more(model):
    model.layers[0].note = {"of": [1, "two"]}


SENT = {
    "a number": lambda m: setattr(m.layers[0].attn, "scale", 1.0),
    "an integer for it": lambda m: setattr(m, "temperature", 2),
    "eps": lambda m: [setattr(block.n1, "eps", 0.5) for block in m.layers],
    "an entry of a dict": new_inside,
    "a list in it": lambda m: m.layers[1].mlp.options["shifts"].append(3.0),
    "an attribute more": an_attribute_more,
    "an attribute less": lambda m: delattr(m.layers[0], "note"),
    "a buffer in place": lambda m: m.shift.add_(1.0),
    "a buffer's data": lambda m: m.shift.data.mul_(0.5),
    "an entry of a buffer": lambda m: m.shift.__setitem__(3, 2.0),
    "through numpy": lambda m: m.shift.numpy().__imul__(2.0),
    "another buffer": lambda m: setattr(m, "shift", torch.full((64,), 0.3)),
    "evaluation again": lambda m: [*(block.drop.train() for block in m.layers), m.eval()],
    "dropouts alone": lambda m: [block.drop.train() for block in m.layers],
    "dropouts of shares": lambda m: [block.attn.drop.train() for block in m.layers],
    "the mode of attention alone": lambda m: [setattr(block.attn, "training", True) for block in m.layers],
    "the mode of one block": lambda m: setattr(m.layers[1], "training", True),
    "another rate": lambda m: setattr(m.layers[0].drop, "p", 0.7),
    "evaluation": lambda m: [block.eval() for block in m.layers],
}


@pytest.mark.parametrize("name", SENT)
def test_changes_of_modules_reach_the_ranks(pair, name):
    with torch.no_grad():
        for model in pair:
            SENT[name](model)
    assert equal(pair)


def test_torchs_own_switches_reach_the_ranks(pair):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert equal(pair, 0.2)
        assert pair[1](IDS).logits.dtype == torch.bfloat16
        with torch.autocast("cpu", enabled=False):
            assert equal(pair)
    with sdpa_kernel(SDPBackend.MATH):
        assert equal(pair)
    torch.use_deterministic_algorithms(True)
    torch.set_default_dtype(torch.float64)
    try:
        assert equal(pair)
        assert pair[1]._placement.session.switches.deterministic == (True, False)
    finally:
        torch.use_deterministic_algorithms(False)
        torch.set_default_dtype(torch.float32)
    assert equal(pair)


def test_a_model_is_tried_with_the_callers_switches_not_with_those_of_an_earlier_call(pair):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert pair[1](IDS).logits.dtype == torch.bfloat16
    other = parallelize(handy(), session=pair[1]._placement.session)  # which compares layers in single precision
    other._placement.end()


class Sees(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("mode", [Sees, lambda: torch.device("meta"), lambda: FlopCounterMode(display=False)])
def test_a_mode_that_sees_nothing_of_the_ranks_is_refused(pair, mode):
    with mode(), pytest.raises(ApplyError, match="does not reach"):
        pair[1](IDS)


@pytest.mark.parametrize("run", [lambda m: torch.func.vmap(m)(IDS[:, None]), lambda m: torch.jit.trace(m, (IDS,))])
def test_transforms_and_traces_are_refused(pair, run):
    with pytest.raises(ApplyError, match="torch.func .* and torch.jit.trace do not reach"):
        run(pair[1])


def test_nothing_is_sent_where_nothing_has_changed(pair, monkeypatch):
    assert equal(pair) and equal(pair)
    placement = pair[1]._placement
    ask = placement._ask
    monkeypatch.setattr(
        placement, "_ask", lambda one, **how: ask(one, **how) if one[0] == "call" else pytest.fail(one[0])
    )
    assert equal(pair)


def around(model):
    own = model.forward
    model.forward = lambda ids: own(ids)


REFUSED = {
    "other operations": (
        lambda m: setattr(m.layers[1].mlp, "act", "relu"),
        "layers.1.mlp.act was set, and layers.1 runs",
    ),
    "a method": (
        lambda m: setattr(m.layers[0].mlp, "forward", torch.relu),
        "layers.0.mlp.forward was set, but a method",
    ),
    "the model's own": (around, "forward was set, but a method"),
    "a function": (lambda m: setattr(m.layers[1].mlp, "act", torch.relu), "layers.1.mlp.act was set, but a method"),
    "a longer buffer": (lambda m: setattr(m, "shift", torch.ones(3, 9, 64)), "shift was set"),
    "a weight elsewhere": (lambda m: setattr(m, "extra", m.head.weight.data), "modules and weights"),
    "what cannot travel": (lambda m: setattr(m.layers[0], "note", (one for one in ())), "cannot be sent"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_other_changes_are_refused_until_they_are_undone(pair, name):
    model = pair[1]
    change, said = REFUSED[name]
    before = [(vars(module), dict(vars(module)), module._buffers, dict(module._buffers)) for module in model.modules()]
    change(model)
    for _ in range(2):
        with pytest.raises(ApplyError, match=rf"{said}.*\.cpu\(\)"):
            model(IDS)
    for scope, old, buffers, old_buffers in before:
        for now, then in ((scope, old), (buffers, old_buffers)):
            for key in now.keys() - then.keys():
                del now[key]
            now.update(then)
    assert equal(pair)


def test_a_buffer_that_was_written_and_put_back_after_a_refusal_is_sent(pair):
    buffers = [model.shift for model in pair]
    for buffer in buffers:
        buffer[0] = 2.0
    assert equal(pair)
    pair[1].shift = torch.ones(3, 9, 64)
    buffers[1][0] = buffers[0][0] = 5.0
    with pytest.raises(ApplyError, match="shift was set"):
        pair[1](IDS)
    pair[1].shift = buffers[1]
    assert equal(pair)


def test_integers_of_modules_whose_sizes_are_shared_out_are_refused(ranks):
    """Where ranks have unequal shares, a run of the whole model shows no other operation with another integer."""
    from transformers import GPT2Config, GPT2Model

    model = parallelize(GPT2Model(GPT2Config(n_embd=32, n_head=4, n_layer=1, vocab_size=64)).eval(), session=ranks)
    attention = model.get_submodule("h.0.attn")
    for name in ("num_heads", "head_dim", "split_size"):
        value = getattr(attention, name)
        setattr(attention, name, 2 * value)
        with pytest.raises(ApplyError, match=f"{name} was set, but ranks share out the sizes of this module"):
            model(IDS)
        setattr(attention, name, value)
    model._placement.end()


def half(self, x):
    return self.down(self.up(x)) / 2


@pytest.mark.parametrize(
    "scope, name, value",
    [(code, "SOFTCAP", 30.0), (code.Mlp, "forward", half), (code.Block, "forward", code.Mlp.forward)],
)
def test_code_that_was_patched_later_is_refused(pair, monkeypatch, scope, name, value):
    with monkeypatch.context() as patch:
        patch.setattr(scope, name, value)
        with pytest.raises(ApplyError, match=rf"{name} .*is not what it was when the ranks got the model"):
            pair[1](IDS)
    assert equal(pair)


def doubled(input, *more, **named):
    return input * 2


@pytest.mark.parametrize("scope, name", [(torch.nn.functional, "relu"), (torch.nn.Linear, "forward")])
def test_a_patch_of_torch_is_refused(pair, monkeypatch, scope, name):
    with monkeypatch.context() as patch:
        patch.setattr(scope, name, doubled)
        with pytest.raises(ApplyError, match=rf"torch's .*{name} is not what it was when the ranks got the model"):
            pair[1](IDS)
    assert equal(pair)


@pytest.mark.parametrize("kind", ["register_module_forward_hook", "register_module_forward_pre_hook"])
def test_hooks_of_all_modules_are_refused(pair, kind):
    handle = getattr(torch.nn.modules.module, kind)(lambda *given: None)
    try:
        with pytest.raises(ApplyError, match="which a hook of all modules"):
            pair[1](IDS)
    finally:
        handle.remove()
    assert equal(pair)


def test_a_note_on_a_class_reaches_the_ranks_and_is_no_patch(pair, monkeypatch):
    for value in (3.0, "other"):
        monkeypatch.setattr(code.Mlp, f"note_{value}", value, raising=False)
        assert equal(pair)


def test_a_weight_that_was_swapped_is_refused(pair):
    weight = pair[1].layers[0].mlp.up.weight
    mine = torch.nn.Parameter(weight * 2)
    torch.utils.swap_tensors(weight, mine)
    with pytest.raises(ApplyError, match="a weight was swapped"):
        pair[1](IDS)
    torch.utils.swap_tensors(weight, mine)
    assert equal(pair)


def test_code_that_was_patched_before_is_refused_and_constants_are_taken_over(ranks, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(code.Mlp, "forward", half)
        with pytest.raises(PlanError, match=r"conveniences\.Mlp\.forward is another function"):
            parallelize(handy(), session=ranks)
    for cap in (2.0, 0.0):
        monkeypatch.setattr(code, "SOFTCAP", cap)
        one = handy(num_layers=1)
        model = parallelize(copy.deepcopy(one), session=ranks)
        assert equal((one, model))
        model._placement.end()


def test_what_a_call_stores_comes_back(pair):
    one, model = pair
    for both in pair:
        both.seen.zero_()
    calls = model.calls
    assert equal(pair) and model.calls == calls + 1 and model.sizes == one.sizes == (64, 2)
    assert relative_error(model.aux, one.aux) < 1e-5 and model.aux.shape == () and float(model.aux) > 0
    assert torch.equal(model.seen, one.seen) and type(model.seen) is torch.Tensor
    kept = model.aux * 1.0
    earlier = model.aux
    model(IDS + 1)
    assert relative_error(model.aux, kept) > 1e-5
    assert relative_error(earlier, kept) < 1e-6  # it had been read
    model(IDS)
    later = model.aux
    model(IDS)
    with pytest.raises(ApplyError, match="aux was stored by an earlier call"):
        later.sum()
    for ids in (IDS + 1, IDS, IDS):
        one(ids)
    for both in pair:
        both.seen.zero_()
    assert equal(pair) and float(model.seen) == float(one.seen) == 1.0


def test_a_share_that_a_call_stores_does_not_come_back(pair):
    assert equal(pair)
    last = pair[1].layers[0].attn.last
    for read in (lambda: last.shape, lambda: last.sum(), lambda: last[0], lambda: str(last)):
        with pytest.raises(
            ApplyError, match=r"layers.0.attn.last was stored.*own share, \(2, 2, 9, 9\) of \(2, 4, 9, 9\)"
        ):
            read()
    with pytest.raises(PlanError, match="set it to a new tensor"):
        last.zero_()


class Measured(Troubled):
    """Stores the widths of what it computes."""

    def forward(self, x):
        inner = torch.relu(self.up(x))
        self.widths = [x.shape[-1], inner.shape[-1]]
        return self.down(inner)


def test_a_number_of_a_share_that_a_call_stores_does_not_come_back(ranks):
    model = parallelize(Measured(), plan=PLAN, session=ranks)
    model(torch.ones(2, 16))
    with pytest.raises(
        ApplyError, match="widths was stored.*a number of each rank's own that forward stores does not"
    ):
        model.widths[1]
    model._placement.end()


def test_the_model_taken_back_is_as_on_one_device(ranks):
    one = handy().train()
    model = parallelize(copy.deepcopy(one), session=ranks)
    assert not model.training and not model.layers[0].mlp.training
    model.layers[0].attn.scale, one.layers[0].attn.scale = 1.0, 1.0
    assert equal((one.eval(), model))
    model.cpu()
    assert model.training and model.layers[0].mlp.training and type(model.aux) is torch.Tensor
    assert torch.equal(model.seen, one.seen) and model.calls == one.calls and relative_error(model.aux, one.aux) < 1e-5
    assert model.layers[0].attn.last is None
    assert equal((one, model.eval()))


def test_a_norm_that_the_ranks_compute_in_one_kernel_follows_its_attributes(ranks):
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "vocab_size": 64}
    one = LlamaForCausalLM(LlamaConfig(**sizes, num_attention_heads=4, num_key_value_heads=2)).eval()
    model = parallelize(copy.deepcopy(one), session=ranks)
    before = model(IDS).logits
    for both in (one, model):
        both.model.norm.variance_epsilon = 10.0
        both.model.layers[0].self_attn.scaling = 1.0
    assert equal((one, model)) and relative_error(model(IDS).logits, before) > 0.05
    model._placement.end()
