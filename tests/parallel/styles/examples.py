"""An example of each style: a small model and its plan, which are its test and its lines on the page about plans."""

from __future__ import annotations

from dataclasses import dataclass
from textwrap import indent


_MODEL = """\
class Model(nn.Module):
    def __init__(self):
        super().__init__()
{}

    def forward(self, x):
{}
"""


@dataclass(frozen=True)
class Example:
    """A small model and its plan.

    Attributes:
        layers: the statements of the constructor of the model, ``Model()``; ``torch``, ``nn`` and ``F`` are defined.
        forward: the statements of its forward, which takes ``x``.
        plan: the rules and attributes, one a line.
        inputs: the shape of ``x``.
        below: if not 0, ``x`` has integers below this number.
        modules: the source of other classes that the model uses.
    """

    layers: str
    forward: str
    plan: str
    inputs: tuple[int, ...] = (3, 8)
    below: int = 0
    modules: str = ""

    @property
    def source(self) -> str:
        """The source of the model's class."""
        return self.modules + _MODEL.format(*(indent(text, " " * 8) for text in (self.layers, self.forward)))


_ROUTED = Example(
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
EXAMPLES = {
    "colwise": Example(
        "self.inner, self.up, self.down = nn.Linear(8, 8), nn.Linear(8, 16), nn.Linear(16, 8)",
        "return self.down(torch.relu(self.up(self.inner(x))))",
        "rule up colwise\nrule down rowwise",
    ),
    "packed_colwise": Example(
        "self.inner, self.gate_up, self.down = nn.Linear(8, 8), nn.Linear(8, 32), nn.Linear(16, 8)",
        "gate, up = self.gate_up(self.inner(x)).chunk(2, -1)\nreturn self.down(torch.relu(gate) * up)",
        "rule gate_up packed_colwise parts=1:1\nrule down rowwise",
    ),
    "colwise_gather_output": Example(
        "self.inner, self.head = nn.Linear(8, 8), nn.Linear(8, 12)",
        "return self.head(self.inner(x)).softmax(-1)",
        "rule head colwise_gather_output",
    ),
    "rowwise": Example(
        "self.up, self.down = nn.Conv1d(8, 16, 3), nn.Conv1d(16, 8, 3)",
        "return self.down(torch.relu(self.up(x)))",
        "rule up colwise dim=0\nrule down rowwise dim=1",
        (2, 8, 9),
    ),
    "packed_rowwise": Example(
        "self.first, self.second, self.down = nn.Linear(8, 16), nn.Linear(8, 16), nn.Linear(32, 8)",
        "return self.down(torch.cat([torch.relu(self.first(x)), self.second(x)], -1))",
        "rule first colwise\nrule second colwise\nrule down packed_rowwise parts=1:1",
    ),
    "rowwise_split_input": Example(
        "self.inner, self.out = nn.Linear(8, 16), nn.Linear(16, 8)",
        "return self.out(self.inner(x).softmax(-1))",
        "rule out rowwise_split_input",
    ),
    "embedding_rowwise": Example(
        "self.words, self.head = nn.Embedding(16, 8), nn.Linear(8, 16, bias=False)\n"
        "self.head.weight = self.words.weight",
        "return self.head(torch.tanh(self.words(x)))",
        "rule words embedding_rowwise\nrule head colwise_gather_output",
        below=16,
    ),
    "replicated_with_grad_allreduce": Example(
        "self.up, self.norm, self.down = nn.Linear(8, 16), nn.LayerNorm(4), nn.Linear(16, 8)",
        "heads = self.norm(self.up(x).view(*x.shape[:-1], -1, 4))\nreturn self.down(heads.flatten(-2))",
        "rule up colwise\nrule norm replicated_with_grad_allreduce\nrule down rowwise",
    ),
    "mla_kv_a_proj": Example(
        "self.kv_a_proj, self.kv_b_proj, self.down = nn.Linear(8, 12), nn.Linear(8, 16), nn.Linear(16, 8)",
        "latent, shared = self.kv_a_proj(x).split([8, 4], -1)\n"
        "heads = self.kv_b_proj(latent).view(*x.shape[:-1], -1, 4) * shared.unsqueeze(-2)\n"
        "return self.down(heads.flatten(-2))",
        "rule kv_a_proj mla_kv_a_proj parts=2:1\nrule kv_b_proj colwise\nrule down rowwise",
    ),
    "all_reduce": Example(
        "self.mixer, self.out = Mixer(), nn.Linear(8, 8)",
        "return self.out(torch.relu(self.mixer(x)))",
        "rule mixer.up colwise\nrule mixer.down shard dim=0\nrule mixer all_reduce",
        modules="""
class Mixer(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(8, 16), nn.Parameter(torch.randn(16, 8))

    def forward(self, x):
        return torch.relu(self.up(x)) @ self.down
""",
    ),
    "moe_tp_experts": Example(
        "self.router, self.experts = nn.Linear(8, 3), Experts()",
        "return self.experts(x, weights=self.router(x).softmax(-1))",
        "rule experts.up colwise\nrule experts.down rowwise\nrule experts moe_tp_experts",
        modules="""
class Experts(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Parameter(torch.randn(3, 16, 8)), nn.Parameter(torch.randn(3, 8, 16))

    def forward(self, x, weights):
        hidden = torch.relu(torch.einsum("ti,eoi->teo", x, self.up))
        return torch.einsum("teo,eio,te->ti", hidden, self.down, weights)
""",
    ),
    "grouped_gemm": _ROUTED,
    "ep_dispatch_experts": _ROUTED,
    "shard": Example(
        "self.up, self.down, self.scale = nn.Linear(8, 16), nn.Linear(16, 8), nn.Parameter(torch.randn(4, 1))",
        "heads = self.up(x).view(*x.shape[:-1], -1, 4) * self.scale\nreturn self.down(heads.flatten(-2))",
        "rule up colwise\nrule scale shard dim=0\nrule down rowwise",
    ),
    "enter_output": Example(
        "self.key, self.query, self.down = nn.Linear(8, 4), nn.Linear(8, 16), nn.Linear(16, 8)",
        "heads = self.query(x).view(*x.shape[:-1], -1, 4) * self.key(x).unsqueeze(-2)\n"
        "return self.down(heads.flatten(-2))",
        "rule query colwise\nrule key enter_output\nrule down rowwise",
    ),
    "enter_input": Example(
        "self.inner, self.scale, self.down = nn.Linear(8, 4), Scale(), nn.Linear(16, 8)",
        "return self.down(self.scale(self.inner(x)))",
        "rule scale.weight shard dim=0\nrule scale enter_input\nrule down rowwise",
        modules="""
class Scale(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 4))

    def forward(self, x):
        return (x.unsqueeze(-2) * self.weight).flatten(-2)
""",
    ),
}
