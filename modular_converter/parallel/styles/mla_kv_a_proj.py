"""``mla_kv_a_proj``: all heads read the last part of a module's output, as in latent attention."""

from __future__ import annotations

from typing import Any

from modular_converter.parallel.styles.style import Enters, Example, Inference, Level, Site, Style


def _after(site: Site, result: Any) -> Any:
    """The output, whose last part enters the sharded region."""
    import torch

    length = result.shape[-1] * site.parts[-1] // sum(site.parts)
    head, last = torch.split(result, [result.shape[-1] - length, length], -1)
    return torch.cat([head, site.region.enter(last)], -1)


MLA_KV_A_PROJ = Style(
    name="mla_kv_a_proj",
    does="the last part of the module's output enters a sharded region: its gradient is summed",
    level=Level.MODULE,
    enters=Enters.TAIL,
    inference=Inference.SILENT,
    after=_after,
    example=Example(
        "self.kv_a_proj, self.kv_b_proj, self.down = nn.Linear(8, 12), nn.Linear(8, 16), nn.Linear(16, 8)",
        "latent, shared = self.kv_a_proj(x).split([8, 4], -1)\n"
        "heads = self.kv_b_proj(latent).view(*x.shape[:-1], -1, 4) * shared.unsqueeze(-2)\n"
        "return self.down(heads.flatten(-2))",
        "rule kv_a_proj mla_kv_a_proj parts=2:1\nrule kv_b_proj colwise\nrule down rowwise",
    ),
)
