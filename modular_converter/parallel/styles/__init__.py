"""The styles of plans, one file each, with the style's facts, its forward, and an example, which is its test.

A new style needs only a new file and its name below.
"""

from __future__ import annotations

from modular_converter.parallel.styles.all_reduce import ALL_REDUCE
from modular_converter.parallel.styles.colwise import COLWISE
from modular_converter.parallel.styles.colwise_gather_output import COLWISE_GATHER_OUTPUT
from modular_converter.parallel.styles.embedding_rowwise import EMBEDDING_ROWWISE
from modular_converter.parallel.styles.enter_input import ENTER_INPUT
from modular_converter.parallel.styles.enter_output import ENTER_OUTPUT
from modular_converter.parallel.styles.ep_dispatch_experts import EP_DISPATCH_EXPERTS
from modular_converter.parallel.styles.grouped_gemm import GROUPED_GEMM
from modular_converter.parallel.styles.mla_kv_a_proj import MLA_KV_A_PROJ
from modular_converter.parallel.styles.moe_tp_experts import MOE_TP_EXPERTS
from modular_converter.parallel.styles.packed_colwise import PACKED_COLWISE
from modular_converter.parallel.styles.packed_rowwise import PACKED_ROWWISE
from modular_converter.parallel.styles.replicated_with_grad_allreduce import REPLICATED_WITH_GRAD_ALLREDUCE
from modular_converter.parallel.styles.rowwise import ROWWISE
from modular_converter.parallel.styles.rowwise_split_input import ROWWISE_SPLIT_INPUT
from modular_converter.parallel.styles.shard import SHARD
from modular_converter.parallel.styles.style import Style


_ALL = (
    COLWISE,
    PACKED_COLWISE,
    COLWISE_GATHER_OUTPUT,
    ROWWISE,
    PACKED_ROWWISE,
    ROWWISE_SPLIT_INPUT,
    EMBEDDING_ROWWISE,
    REPLICATED_WITH_GRAD_ALLREDUCE,
    MLA_KV_A_PROJ,
    ALL_REDUCE,
    MOE_TP_EXPERTS,
    GROUPED_GEMM,
    EP_DISPATCH_EXPERTS,
    SHARD,
    ENTER_OUTPUT,
    ENTER_INPUT,
)
STYLES: dict[str, Style] = {style.name: style for style in _ALL}
"""Name -> style, in the order of the page about plans; transformers' own styles come first."""
