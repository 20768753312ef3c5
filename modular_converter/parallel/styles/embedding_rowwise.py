"""``embedding_rowwise``: each rank holds some rows of an embedding."""

from __future__ import annotations

from typing import Any

from modular_converter.parallel.errors import ApplyError
from modular_converter.parallel.styles.style import (
    LOOKUP,
    SUM_OVER_RANKS,
    Example,
    Inference,
    Level,
    Side,
    Style,
    TorchStyle,
    WeightUse,
)


def _forward(use: WeightUse) -> Any:
    """The looked-up rows, summed over the ranks."""
    return NotImplemented if use.kind != LOOKUP else _rows(use, *use.args, **use.kwargs)


def _rows(
    use: WeightUse,
    ids: Any,
    weight: Any,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Any:
    """The rows, with zeros for those of other ranks. Ids beyond the vocabulary raise torch's own error."""
    import torch

    if scale_grad_by_freq or sparse:
        raise ApplyError("scale_grad_by_freq and sparse need all ids on one rank; leave this embedding whole")
    first, last = use.own
    known = (ids >= first) & (ids < last)
    elsewhere = ~known & (ids >= 0) & (ids < use.borders[-1])
    local = torch.where(elsewhere, torch.zeros_like(ids), ids - first)
    pad = None if padding_idx is None or not first <= padding_idx < last else padding_idx - first
    rows = weight.as_subclass(torch.Tensor)
    if max_norm is not None and not ids.is_meta:
        with torch.no_grad():
            torch.embedding_renorm_(rows.detach(), (ids - first)[known], max_norm, norm_type)
    found = torch.nn.functional.embedding(local, rows, pad)
    return use.region.sum(found * known.unsqueeze(-1).to(found.dtype))


EMBEDDING_ROWWISE = Style(
    name="embedding_rowwise",
    does="vocabulary sharded, partial rows summed",
    level=Level.WEIGHT,
    side=Side.FIRST,
    collective=SUM_OVER_RANKS,
    torch=TorchStyle("RowwiseParallel", "input_layouts", "Embedding"),
    inference=Inference.SUMMED_LOOKUP,
    table=True,
    forward=_forward,
    example=Example(
        "self.words, self.head = nn.Embedding(16, 8), nn.Linear(8, 16, bias=False)\n"
        "self.head.weight = self.words.weight",
        "return self.head(torch.tanh(self.words(x)))",
        "rule words embedding_rowwise\nrule head colwise_gather_output",
        below=16,
    ),
)
