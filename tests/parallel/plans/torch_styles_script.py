"""Two gloo processes: a derived plan through torch's own `parallelize_module`, against the whole model."""

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import parallelize_module

from modular_converter.parallel.plans.emit import to_torch, torch_text
from modular_converter.parallel.trace.record import record
from tests.parallel.plan_of_trace import plan_of_trace


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up = torch.nn.LayerNorm(16), torch.nn.Linear(16, 48)
        self.down = torch.nn.Linear(48, 16)

    def forward(self, x):
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))))


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.words = torch.nn.Embedding(64, 16)
        self.layers = torch.nn.ModuleList([Block() for _ in range(2)])
        self.norm, self.head = torch.nn.LayerNorm(16), torch.nn.Linear(16, 64, bias=False)

    def forward(self, ids):
        x = self.words(ids)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


if __name__ == "__main__":
    dist.init_process_group("gloo")
    ids = torch.arange(12).view(2, 6)
    whole, sharded = Model(), Model()
    plan = plan_of_trace(record(whole, {"ids": ids}, "model"))
    styles = to_torch(plan, whole)
    pasted = {}
    exec(torch_text(plan, whole), pasted)  # what `--format torch` prints does the same
    assert list(pasted["parallelize_plan"]) == list(styles)
    styles = pasted["parallelize_plan"]
    parallelize_module(sharded, init_device_mesh("cpu", (2,)), styles)
    want, got = whole(ids), sharded(ids)
    assert torch.allclose(got, want, atol=1e-5), (got - want).abs().max()
    want.square().sum().backward()
    got.square().sum().backward()
    gradient = sharded.layers[0].down.weight.grad.full_tensor()
    assert torch.allclose(gradient, whole.layers[0].down.weight.grad, atol=1e-4)
    local = sharded.layers[0].up.weight.to_local()
    assert local.shape == (24, 16), local.shape
    if dist.get_rank() == 0:
        print("equal", len(styles))
    dist.barrier()
    dist.destroy_process_group()
