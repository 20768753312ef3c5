"""``grouped_gemm``: stacked weights of experts; each rank holds some of the experts, whole."""

from __future__ import annotations

from dataclasses import replace

from modular_converter.parallel.styles.shard import SHARD
from modular_converter.parallel.styles.style import Example


ROUTED = Example(
    "self.router, self.experts = nn.Linear(8, 4), Experts()",
    "weights, chosen = self.router(x).softmax(-1).topk(2)\nreturn self.experts(x, chosen, weights)",
    "rule experts.up grouped_gemm\nrule experts.down grouped_gemm\nrule experts ep_dispatch_experts",
    modules="""
class Experts(nn.Module):
    def __init__(self):
        super().__init__()
        self.num_experts = 4
        self.up = nn.Parameter(torch.randn(4, 8, 16))
        self.down = nn.Parameter(torch.randn(4, 16, 8))

    def forward(self, x, chosen, weights):
        hidden = torch.relu(torch.einsum("ti,tkio->tko", x, self.up[chosen]))
        return (torch.einsum("tko,tkoi->tki", hidden, self.down[chosen]) * weights[..., None]).sum(1)
""",
)
GROUPED_GEMM = replace(
    SHARD,
    name="grouped_gemm",
    does="stacked weights of experts sharded by expert; the module's num_experts becomes the local number",
    library=True,
    acts_as="shard",
    expert=True,
    shrinks="num_experts",
    example=ROUTED,
)
