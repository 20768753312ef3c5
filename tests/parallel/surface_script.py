"""What a user can call on a model, called on what `parallelize` returns in a layout: as on one device, or refused with words."""

from __future__ import annotations

import copy
import io
import json
import pickle
import sys
import tempfile
from operator import attrgetter

import torch
import torch.distributed as dist
from torch import nn
from transformers import LogitsProcessor, LogitsProcessorList, MixtralConfig, MixtralForCausalLM

from modular_converter.parallel import Training, parallelize
from modular_converter.parallel.errors import PlanError
from tests.parallel.settings_script import llama


IDS = torch.arange(1, 17).view(2, 8)
HEARD: list[int] = []


def mixtral():
    torch.manual_seed(0)
    sizes = {
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "vocab_size": 64,
        "num_local_experts": 4,
    }
    return MixtralForCausalLM(MixtralConfig(**sizes, num_attention_heads=4, num_key_value_heads=2)).eval()


# The whole model, and a weight of it that processes share out: with experts where the layout divides these.
small, CUT = (mixtral, "mlp.experts.gate_up_proj") if "ep2" in sys.argv else (llama, "mlp.up_proj.weight")


class Counts(LogitsProcessor):
    """Wants the token whose number is that of its calls."""

    calls = 0

    def __call__(self, ids, scores):
        self.calls += 1
        return torch.nn.functional.one_hot(torch.full((len(ids),), self.calls), scores.shape[1]).float()


def logits(model):
    """Of a forward, on all processes: with stages the last one has them."""
    model.eval()
    with torch.no_grad():
        found = model(input_ids=IDS)
    sent = [None if found is None else found.logits]
    if "stages" in vars(model):
        dist.broadcast_object_list(sent, src=dist.get_world_size() - 1)
    return sent[0]


def after(change):
    """The logits behind a call that changes the model."""
    return lambda model: (change(model), logits(model))[1]


def trained(model):
    model.train()
    if "stages" in vars(model):
        return float(model.step(input_ids=IDS, labels=IDS))
    loss = model(input_ids=IDS, labels=IDS, use_cache=False).loss
    loss.backward()
    return float(loss.detach())


def hooked(register, *others):
    def call(model):
        HEARD.clear()
        getattr(model, register)(lambda *_: HEARD.append(1), *others)
        trained(model)
        return len(HEARD)

    return call


def stepped(model):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    trained(model)
    optimizer.step()
    model.zero_grad()
    trained(model)
    return logits(model)


def sampled(model):
    """Tokens, and what is drawn behind them."""
    torch.manual_seed(1)
    tokens = model.eval().generate(IDS[:1], max_new_tokens=4, do_sample=True)
    return torch.cat([tokens.flatten(), torch.rand(3)])


def inferred(model):
    with torch.inference_mode():
        logits(model)
    return trained(model)


def assigned(model):
    """Of whole gradients, to which a backward adds."""
    trained(model)
    for one in model.parameters():
        if not one.is_meta:
            one.grad = torch.ones(one.shape, dtype=one.dtype)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    trained(model)
    optimizer.step()
    return logits(model)


def saved(**options):
    def call(model):
        if not hasattr(model, "layout"):  # transformers saves on the first process alone
            return logits(model)
        folder = [tempfile.mkdtemp()]
        dist.broadcast_object_list(folder)
        model.save_pretrained(folder[0], **options)
        return logits(small().from_pretrained(folder[0]))

    return call


_PROPERTIES = (
    "base_model_prefix main_input_name name_or_path dtype input_modalities output_modalities supports_gradient_checkpointing "
    "supports_pp_plan supports_tp_plan tp_plan pp_plan ep_plan fsdp_plan tp_size fsdp_size use_kernels dump_patches "
    "call_super_init is_gradient_checkpointing is_activation_checkpointing training model_tags can_record_outputs"
)
# Each is asked of one model.
ASKED = {name: lambda model, name=name: getattr(model, name) for name in _PROPERTIES.split()} | {
    "device": lambda model: str(model.device),
    "config": lambda model: (model.config.hidden_size, model.config.num_attention_heads),
    "generation_config": lambda model: model.generation_config.max_length,
    "can_generate": lambda model: model.can_generate(),
    "add_model_tags": lambda model: (model.add_model_tags("own"), list(model.model_tags))[1],
    "is_remote_code": lambda model: model.is_remote_code(),
    "num_parameters": lambda model: (model.num_parameters(), model.num_parameters(exclude_embeddings=True)),
    "get_memory_footprint": lambda model: model.get_memory_footprint(),
    "parameters": lambda model: [tuple(one.shape) for one in model.parameters()],
    "named_parameters": lambda model: [(name, tuple(one.shape)) for name, one in model.named_parameters("x", True)],
    "entries": lambda model: sum(one.numel() for one in model.parameters() if one.requires_grad),
    "buffers": lambda model: [tuple(one.shape) for one in model.buffers()],
    "named_buffers": lambda model: [name for name, _ in model.named_buffers()],
    "named_non_persistent_buffers": lambda model: [name for name, _ in model.named_non_persistent_buffers()],
    "modules": lambda model: len(list(model.modules())),
    "named_modules": lambda model: [name for name, _ in model.named_modules()],
    "children": lambda model: len(list(model.children())),
    "named_children": lambda model: [name for name, _ in model.named_children()],
    "get_submodule": lambda model: type(model.get_submodule("model.layers.1")).__name__,
    "get_buffer": lambda model: model.get_buffer("model.rotary_emb.inv_freq"),
    "get_parameter": lambda model: tuple(model.get_parameter(f"model.layers.1.{CUT}").shape),
    "get_parameter_or_buffer": lambda model: tuple(model.get_parameter_or_buffer("model.norm.weight").shape),
    "get_input_embeddings": lambda model: tuple(model.get_input_embeddings().weight.shape),
    "get_output_embeddings": lambda model: tuple(model.get_output_embeddings().weight.shape),
    "get_decoder": lambda model: type(model.get_decoder()).__name__,
    "base_model": lambda model: type(model.base_model).__name__,
    "get_expanded_tied_weights_keys": lambda model: model.get_expanded_tied_weights_keys(),
    "get_correct_attn_implementation": lambda model: model.get_correct_attn_implementation("eager"),
    "get_correct_experts_implementation": lambda model: model.get_correct_experts_implementation("eager"),
    "get_experts_implementation": lambda model: model.get_experts_implementation(),
    "dummy_inputs": lambda model: sorted(model.dummy_inputs),
    "extra_repr": lambda model: model.extra_repr(),
    "hash": lambda model: len({model, model}),
    "state_dict": lambda model: [(name, tuple(one.shape)) for name, one in model.state_dict().items()],
    "weight": lambda model: tuple(attrgetter(CUT)(model.model.layers[1]).shape),
    "forward": lambda model: model.eval().forward(input_ids=IDS).logits.detach(),
    "call": logits,
    "generate": lambda model: model.eval().generate(IDS, max_new_tokens=3, do_sample=False),
    "sample": sampled,
    "generate with a processor": lambda model: model.eval().generate(
        IDS, max_new_tokens=4, do_sample=False, logits_processor=LogitsProcessorList([Counts()])
    ),
    "compute_transition_scores": lambda model: model.compute_transition_scores(IDS, [torch.ones(2, 64)] * 2),
    "prepare_inputs_for_generation": lambda model: sorted(model.prepare_inputs_for_generation(IDS)),
    "deepcopy": lambda model: logits(copy.deepcopy(model)),
    "copy": lambda model: logits(copy.copy(model)),
    "pickle": lambda model: bool(pickle.dumps(model)),
    "torch.save": lambda model: torch.save(model, io.BytesIO()),
    "save_pretrained": saved(),
    "safe_serialization": saved(safe_serialization=True, max_shard_size="20KB"),
    "DistributedDataParallel": lambda model: nn.parallel.DistributedDataParallel(model) and None,
}
# Each of a model of its own.
DONE = {
    "train": lambda model: model.train().training,
    "eval": lambda model: model.eval().training,
    "zero_grad": lambda model: (trained(model), model.zero_grad(), trained(model))[2],
    "zeros": lambda model: (trained(model), model.zero_grad(set_to_none=False), trained(model))[2],
    "step": stepped,
    "inference mode": inferred,
    "assigned gradients": assigned,
    "to": after(lambda model: model.to("cpu")),
    "cpu": after(lambda model: model.cpu()),
    "float": after(lambda model: model.float()),
    "double": after(lambda model: model.double()),
    "half": after(lambda model: model.half()),
    "bfloat16": after(lambda model: model.bfloat16()),
    "type": after(lambda model: model.type(torch.float32)),
    "to_empty": lambda model: model.to_empty(device="cpu") and None,
    "share_memory": after(lambda model: model.share_memory()),
    "apply": after(lambda model: model.apply(lambda one: one.requires_grad_(False))),
    "compile": after(lambda model: model.compile(backend="eager")),
    "requires_grad_": lambda model: [one.requires_grad for one in model.requires_grad_(False).parameters()],
    "load_state_dict": after(lambda model: model.load_state_dict({n: 2 * v for n, v in small().state_dict().items()})),
    "register_forward_hook": hooked("register_forward_hook"),
    "register_forward_pre_hook": hooked("register_forward_pre_hook"),
    "register_full_backward_hook": hooked("register_full_backward_hook"),
    "register_full_backward_pre_hook": hooked("register_full_backward_pre_hook"),
    "register_buffer": after(lambda model: model.register_buffer("own", torch.ones(2))),
    "register_parameter": after(lambda model: model.register_parameter("own", nn.Parameter(torch.ones(2)))),
    "register_module": after(lambda model: model.register_module("own", nn.Linear(2, 2))),
    "add_module": after(lambda model: model.add_module("own", nn.Linear(2, 2))),
    "set_submodule": after(lambda model: model.set_submodule("model.layers.1.mlp", nn.Identity())),
    "attribute": lambda model: (setattr(model, "own", 3), model.own)[1],
    "set config": after(lambda model: setattr(model.config, "output_hidden_states", True)),
    "gradient_checkpointing_enable": lambda model: (model.gradient_checkpointing_enable(), trained(model))[1],
    "gradient_checkpointing_disable": lambda model: (model.gradient_checkpointing_disable(), trained(model))[1],
    "enable_input_require_grads": lambda model: (model.enable_input_require_grads(), trained(model))[1],
    "set_attn_implementation": after(lambda model: model.set_attn_implementation("eager")),
    "set_experts_implementation": after(lambda model: model.set_experts_implementation("eager")),
    "set_use_kernels": after(lambda model: model.set_use_kernels(False)),
    "set_input_embeddings": after(lambda model: model.set_input_embeddings(nn.Embedding(64, 32))),
    "set_output_embeddings": after(lambda model: model.set_output_embeddings(nn.Linear(32, 64, bias=False))),
    "set_decoder": after(lambda model: model.set_decoder(model.model)),
    "resize_token_embeddings": after(lambda model: model.resize_token_embeddings(70)),
    "tie_weights": after(lambda model: model.tie_weights()),
    "init_weights": after(lambda model: model.init_weights()),
}


def answer(call, model):
    """What a call gives, or the words of its error."""
    try:
        return call(model), ""
    except PlanError as error:
        return None, f"{error}"
    except Exception as error:
        return None, f"RAW {type(error).__name__}: {error}"


def is_same(one, other):
    if isinstance(one, torch.Tensor):
        return (
            one.shape == other.shape
            and one.dtype == other.dtype
            and torch.allclose(one, other, atol=1e-3 if one.dtype.itemsize > 2 else 0.05)
        )
    return abs(one - other) < 1e-4 if isinstance(one, float) else one == other


# Of the hub, of adapters, of the class, of the library's own start and saving, and those that Llama or this machine lacks.
_OTHERS = (
    "T_destination active_adapters add_adapter adjust_generation_fn barrier_after_gathered_checkpoint_save config_class "
    "continuous_batching_context_manager cuda delete_adapter dequantize destroy_cached_continuous_batching_manager "
    "disable_adapters disable_input_require_grads enable_adapters enable_peft_hotswap from_pretrained "
    "gather_sharded_state_dict_for_save generate_batch generation_config_class get_adapter_state_dict get_compiled_call "
    "get_encoder get_extra_state get_init_context get_position_embeddings heal_tokens init_continuous_batching "
    "init_parallel_plans initialize_weights ipu is_backend_compatible is_custom_code is_distributed_loading_by_transformers load_adapter "
    "load_custom_generate loss_function mark_tied_weights_as_initialized maybe_distribute_model mtia post_init "
    "prepare_distribute_model push_to_hub register_backward_hook register_for_auto_class "
    "register_load_state_dict_post_hook register_load_state_dict_pre_hook register_state_dict_post_hook "
    "register_state_dict_pre_hook resize_position_embeddings retrieve_modules_from_names save_distributed_checkpoint "
    "set_adapter set_encoder set_extra_state should_save_on_this_rank smart_apply supports_context_parallel "
    "warn_if_padding_and_no_attention_mask xpu activation_checkpointing_disable activation_checkpointing_enable"
)
NOT_CALLED = set(_OTHERS.split())


def neither_own_nor_refused(model, made):
    """The public names of the model's class that a pipeline has without having defined them, but for plain values and what was
    found the same."""
    public = [name for name in dir(type(small())) if not name.startswith("_") and not hasattr(type(model), name)]
    return [name for name in public if callable(getattr(model, name, None)) and made.get(name) != "same"]


def main(layout, which):
    made = {}

    def fresh():
        training = {"training": Training(chunks=2)} if "pp" in layout else {}
        return parallelize(small(), layout=layout, device="cpu", probe=False, **training)

    for calls in (ASKED,) if which == "asked" else (ASKED, DONE):
        for name, call in calls.items():
            if calls is DONE or not made:
                model = fresh()
            found, said = answer(call, model)
            if said.startswith("RAW") and said == answer(call, small())[1]:
                said = "same"
            made[name] = said or ("same" if is_same(found, call(small())) else f"DIFFERENT {found}"[:200])
    if "pp" in layout:
        made["rest"] = str(neither_own_nor_refused(model, made))
    everyone = [None] * dist.get_world_size()
    dist.all_gather_object(everyone, made)
    if not dist.get_rank():
        print(json.dumps({name: [one[name] for one in everyone] for name in made}), flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    dist.init_process_group("gloo")
    main(*sys.argv[1:])
