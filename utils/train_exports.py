"""Train small models from exported plans with the tools' own code, on CPU processes, beside the whole model.

`torchrun --nproc-per-node 2 utils/train_exports.py deepspeed|accelerate|torchtitan MODEL…` in an environment with the
package and this project. The tool shards the model with the exported text and takes steps of SGD; losses (torchtitan), or
outputs before and after a step (DeepSpeed, accelerate), must be those of the whole model, and a process must hold no more
bytes than the plan says. Exit code: 0 the same, 1 not. `--done rows.jsonl --limit N` takes N more models of the sample of
`utils/export_table.py`, and appends their rows for its table.

accelerate's own check of the processes is left out: it takes tensor parallelism on devices of several processes alone, which
CPUs are not for it. All else that it does with a model for this (`Accelerator`, its mesh, `prepare`) runs.

torchtitan's builder makes its model of the configuration, its `parallelize_hf_transformers` shards it, its loss takes the
shares of the vocabulary. Only its FSDP is left out, which needs a torch that shards annotated tensors: on one data rank it
only sums the gradients of states with the layout `R`, which is done here.
"""

from __future__ import annotations

import argparse
import copy
import json
import shutil
import sys
import tempfile
import types
import warnings
from collections.abc import Callable, Iterator
from datetime import timedelta
from importlib.metadata import version
from pathlib import Path
from typing import Any


RATE = 0.05
STEPS = 2
LENGTH = 128
CLOSE = 2e-4


def _deepspeed_engine(model: Any, text: str) -> Any:
    import deepspeed

    # A collective in shared memory, which is compiled for minutes; without it gloo does the same.
    sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None  # type: ignore[attr-defined]
    deepspeed.init_distributed("gloo", verbose=False)
    config = {
        "train_micro_batch_size_per_gpu": 1,
        "gradient_clipping": 0.0,
        "optimizer": {"type": "SGD", "params": {"lr": RATE}},
    }
    return deepspeed.initialize(model=model, config=config | json.loads(text), model_parameters=model.parameters())[0]


def _outputs(model: Any, inputs: dict[str, Any]) -> list[Any]:
    from modular_converter.parallel.trace.record import tensors_in

    return [tensor for tensor in tensors_in(model(**inputs)) if tensor.is_floating_point() and tensor.requires_grad]


def _accelerate_model(model: Any, text: str) -> Any:
    """The model of a folder as the exported file prepares it, and its optimizer as accelerate does."""
    import torch
    from accelerate import parallelism_config

    parallelism_config.ParallelismConfig._validate_accelerator = lambda *rest: None
    exported: dict[str, Any] = {}
    exec(text, exported)
    folder = [tempfile.mkdtemp()]
    torch.distributed.broadcast_object_list(folder)
    if torch.distributed.get_rank() == 0:
        model.save_pretrained(folder[0])
    torch.distributed.barrier()
    accelerator, shared = exported["prepared"](folder[0], torch.distributed.get_world_size(), auto=type(model))
    torch.distributed.barrier()
    if torch.distributed.get_rank() == 0:
        shutil.rmtree(folder[0])
    return accelerator, shared, accelerator.prepare(torch.optim.SGD(shared.parameters(), lr=RATE))


def check_accelerate(derived: Any, found: Any) -> str:
    """``the same``, or the first difference; on each rank."""
    accelerator, shared, step = _accelerate_model(derived.small.model, found.text)

    def backward(loss: Any) -> None:
        step.zero_grad()
        accelerator.backward(loss)
        step.step()

    return _a_step(derived, found, shared, shared, backward)


def check_deepspeed(derived: Any, found: Any) -> str:
    """``the same``, or the first difference; on each rank."""
    from modular_converter.parallel.tiny.build import copy_of

    shared = copy_of(derived.small.model)
    engine = _deepspeed_engine(shared, found.text)

    def backward(loss: Any) -> None:
        engine.backward(loss)
        engine.step()

    return _a_step(derived, found, engine, shared, backward)


def _a_step(derived: Any, found: Any, call: Any, shared: Any, backward: Callable[[Any], None]) -> str:
    """Compare outputs before and after a step of SGD, and the bytes of a process.

    Args:
        call: gives the outputs of the sharded model.
        shared: has its parameters.
        backward: takes a step for a loss.
    """
    import torch

    from modular_converter.parallel.exports.export import bytes_on_device
    from modular_converter.parallel.proof.judge import worst_error
    from modular_converter.parallel.tiny.build import copy_of

    plain = copy_of(derived.small.model)
    inputs = dict(derived.small.inputs)
    optimizer = torch.optim.SGD(plain.parameters(), lr=RATE)
    for turn in ("before", "after"):
        whole, own = _outputs(plain, inputs), _outputs(call, inputs)
        error = worst_error([one.detach() for one in own], [one.detach() for one in whole])
        if not error <= CLOSE:
            return f"DIFFERENT: outputs {turn} a step by {error:.1e}"
        sum((one * one).mean() for one in whole).backward()
        optimizer.step()
        backward(sum((one * one).mean() for one in own))
    local = [getattr(parameter, "_local_tensor", parameter) for parameter in shared.parameters()]
    kept, planned = 2 * sum(parameter.numel() for parameter in local), bytes_on_device(plain, found.plan, 2)
    if kept > planned:
        return f"DIFFERENT: a process holds {kept} bytes, the plan says {planned}"
    return f"the same outputs before and after a step; {kept} bytes a process, {planned} in the plan"


def titan_model(small: Any) -> Any:
    """torchtitan's model, with random weights, of the configuration of a small base model."""
    from torchtitan.experiments.transformers_modeling_backend import TitanModelConfig
    from torchtitan.experiments.transformers_modeling_backend.model import HFTransformerModel
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    config = copy.deepcopy(small.config)
    config.architectures = [MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[config.model_type]]
    config.tie_word_embeddings = False  # torchtitan unties them before the first step
    config.pad_token_id = None  # the export refuses an index of padding
    made = HFTransformerModel.Config(model_config=TitanModelConfig())
    with tempfile.TemporaryDirectory() as folder:
        config.save_pretrained(folder)
        made.update_from_config(
            config=types.SimpleNamespace(
                training=types.SimpleNamespace(seq_len=LENGTH),
                parallelism=None,
                debug=types.SimpleNamespace(deterministic=False),
                loss=None,
                hf_model=folder,
            )
        )
    return made.build()


def shard_as_titan(model: Any, text: str, dims: Any) -> None:
    """Let torchtitan shard its model with the exported text."""
    from torchtitan.config import CompileConfig, ParallelismConfig, TrainingConfig
    from torchtitan.experiments.transformers_modeling_backend import hf_sharding, parallelize

    exported: dict[str, Any] = {}
    exec(text, exported)
    hf_sharding.set_hf_sharding_configs = exported["set_sharding_configs"]
    parallelize.apply_fsdp = lambda model, *rest, **more: None
    parallelize.parallelize_hf_transformers(
        model,
        parallel_dims=dims,
        training=TrainingConfig(seq_len=LENGTH),
        parallelism=ParallelismConfig(tensor_parallel_degree=dims.tp),
        compile_config=CompileConfig(enable=False),
        ac_config=None,
        dump_folder="",
    )


def with_partial_gradients(model: Any) -> Iterator[Any]:
    """The parameters whose gradients torchtitan's FSDP would sum over the tensor-parallel group."""
    import spmd_types as spmd
    from torchtitan.distributed.parallel_dims import MeshAxisName

    for module in model.model.modules():
        config = getattr(module, "_sharding_config", None)
        for name, parameter in module.named_parameters(recurse=False):
            if config is not None and config.state_shardings[name].axis_types[MeshAxisName.TP] is spmd.R:
                yield parameter


def check_torchtitan(derived: Any, found: Any) -> str:
    """``the same``, or the first difference; on each rank."""
    import torch
    import torch.distributed as dist
    from torch.nn.attention import flex_attention
    from torchtitan.components.loss import cross_entropy_loss
    from torchtitan.distributed import ParallelDims, parallel_dims
    from torchtitan.distributed.utils import get_spmd_context

    parallel_dims.device_type = "cpu"  # it takes "cuda" where there is no device
    # The compiled form of flex attention has no backward on CPUs; without the compiler torch runs its plain form, which has.
    flex_attention._validate_device = lambda *tensors: None
    ranks = dist.get_world_size()
    dims = ParallelDims(dp_replicate=1, dp_shard=1, cp=1, tp=ranks, pp=1, ep=1, world_size=ranks)
    torch.manual_seed(0)
    sharded = titan_model(derived.small.model)
    plain = copy.deepcopy(sharded)
    vocabulary = sharded.model.config.vocab_size
    tokens = torch.randint(vocabulary, (2, LENGTH + 1))
    words, labels, places = tokens[:, :-1], tokens[:, 1:], torch.arange(LENGTH).expand(2, -1)
    losses: list[tuple[float, float]] = []
    error = 0.0
    with get_spmd_context(parallel_dims=dims)():
        shard_as_titan(sharded, found.text, dims)
        summed = list(with_partial_gradients(sharded))
        steps = [torch.optim.SGD(one.parameters(), lr=RATE) for one in (plain, sharded)]
        for _ in range(STEPS + 1):  # the last loss shows the last step
            whole = torch.nn.functional.cross_entropy(plain(words, positions=places).flatten(0, 1), labels.flatten())
            own = cross_entropy_loss(sharded(words, positions=places), labels, global_vocab_size=vocabulary)
            own = own / labels.numel()
            losses.append((float(own), float(whole)))
            for step in steps:
                step.zero_grad()
            whole.backward()
            own.backward()
            for parameter in summed:
                dist.all_reduce(parameter.grad, group=dims.get_mesh("tp").get_group())
            error = max(error, gradient_error(sharded.model, plain.model, dist.get_rank()))
            for step in steps:
                step.step()
    said = ", ".join(f"{own:.6f} ({whole:.6f})" for own, whole in losses)
    held = sum(parameter.numel() for parameter in sharded.model.parameters())
    share = f"{held / sum(parameter.numel() for parameter in plain.parameters()):.0%} of the weights a process"
    same = all(abs(own - whole) <= CLOSE * abs(whole) for own, whole in losses) and error <= CLOSE
    found = f"losses over {STEPS} steps: {said}; gradients differ by {error:.1e}; {share}"
    return f"{'the same' if same else 'DIFFERENT'} {found}"


def gradient_error(sharded: Any, plain: Any, rank: int) -> float:
    """The largest relative error of the gradients of a rank's shares."""
    from modular_converter.parallel.proof.judge import gradient_errors

    own = {name: parameter.grad for name, parameter in sharded.named_parameters()}

    def share(name: str, whole: Any) -> Any:
        for dim, size in enumerate(own[name].shape):
            whole = whole.narrow(dim, rank * size, size) if size < whole.shape[dim] else whole
        return whole

    whole = {name: parameter.grad for name, parameter in plain.named_parameters()}
    return max(gradient_errors(own, whole, share).values())


CHECKS = {"accelerate": check_accelerate, "deepspeed": check_deepspeed, "torchtitan": check_torchtitan}


def check(tool: str, name: str) -> str:
    """What the check of a tool says, or why the model is not exported."""
    from modular_converter.parallel.errors import PlanError
    from modular_converter.parallel.exports.export import TOOLS, export
    from modular_converter.parallel.proof.prove import derive_model
    from modular_converter.parallel.tiny.build import target_of

    derived = derive_model(target_of(name))
    try:
        found = export(derived, TOOLS[tool])
    except PlanError as error:
        return f"not exported: {error}"
    return CHECKS[tool](derived, found)


def sample(tool: str, done: Path, limit: int) -> bool:
    """Append the rows of a sample; whether a row is of numbers that differ."""
    import torch.distributed as dist
    from export_table import note, rows_of, todo

    from modular_converter.parallel.exports.export import TOOLS
    from modular_converter.parallel.proof.on_ranks import RankPool

    same = True
    pool = RankPool(2) if TOOLS[tool].route else None
    for name in todo([tool], done, limit, causal=False):
        rows = rows_of(name, [tool], pool, CHECKS[tool])
        same &= "DIFFERENT" not in rows[0].get("reason", "")
        dist.barrier()
        if dist.get_rank() == 0:
            note(done, rows)
            print(name, rows[0]["state"], rows[0].get("reason", rows[0].get("proven")), flush=True)
        dist.barrier()
    if pool is not None:
        pool.stop()
    return same


def main() -> None:
    import torch.distributed as dist

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tool", choices=CHECKS)
    parser.add_argument("models", nargs="*")
    parser.add_argument("--done", type=Path, default=Path("exports.jsonl"))
    parser.add_argument("--limit", type=int, default=0, help="how many more models of the sample")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    dist.init_process_group("gloo", timeout=timedelta(minutes=20))
    print(f"{options.tool} {version(options.tool)}", flush=True)
    good = sample(options.tool, options.done, options.limit) if options.limit else True
    for name in options.models:
        result = check(options.tool, name)
        good &= "DIFFERENT" not in result
        print(f"{name}: {result}", flush=True)
    dist.destroy_process_group()
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
