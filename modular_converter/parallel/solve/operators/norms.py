"""Axis rules of norms, softmaxes and fused attention."""

from __future__ import annotations

from modular_converter.parallel.solve.axes import size
from modular_converter.parallel.solve.flow import Flow, integer_argument, integer_arguments, ref
from modular_converter.parallel.solve.operators.traits import OperatorTable
from modular_converter.parallel.trace.graph import Op, Ref


TABLE = OperatorTable()


@TABLE.operator("_softmax _log_softmax _safe_softmax")
def softmax(flow: Flow, op: Op) -> None:
    dims = flow.of(ref(op.args[0]))
    if dims:
        flow.axes.keep_whole("a softmax over it", dims[integer_argument(op.args[1])])
    flow.set(op.outputs[0], list(dims))


@TABLE.operator("native_layer_norm")
def layer_norm(flow: Flow, op: Op) -> None:
    """The normalised last dimensions stay whole, with weight and bias."""
    dims = flow.of(ref(op.args[0]))
    count = len(integer_arguments(op.args[1]))
    flow.axes.keep_whole("a norm over its full width", *dims[-count:])
    for arg in op.args[2:]:
        if isinstance(arg, Ref):
            for left, right in zip(flow.of(arg.id), dims[-count:]):
                flow.axes.unify(left, right)
    flow.set(op.outputs[0], list(dims))
    for out in op.outputs[1:]:
        flow.set(out, [*dims[:-count], *[()] * count])


@TABLE.operator("native_group_norm native_batch_norm _native_batch_norm_legit_no_training")
def channel_norm(flow: Flow, op: Op) -> None:
    """Group and batch norms: channels and positions stay whole."""
    dims = flow.of(ref(op.args[0]))
    in_training = op.name == "native_batch_norm" and op.args[5]
    flow.axes.keep_whole("a norm over channels", *(dims if in_training else dims[1:]))
    for number in op.inputs()[1:]:
        flow.axes.keep_whole("a norm over channels", *flow.of(number))
    flow.set(op.outputs[0], list(dims))
    for out in op.outputs[1:]:
        flow.fresh(out, "statistics of a norm")
        if op.name == "native_group_norm":
            flow.dims[out][0] = dims[0]


@TABLE.operator("_scaled_dot_product_flash_attention_for_cpu")
def attention(flow: Flow, op: Op) -> None:
    """Fused attention ``[b, h, s, e]``: heads are independent, widths and positions are not; query heads may be grouped."""
    q, k, v = (flow.of(ref(arg)) for arg in op.args[:3])
    flow.axes.unify(q[0], k[0])
    flow.axes.unify(k[0], v[0])
    flow.axes.unify(k[1], v[1])
    heads, groups = size(q[1]), size(k[1])
    flow.axes.unify(q[1], k[1] if heads == groups else k[1] + flow.axes.leaf(heads // groups))
    flow.axes.unify(q[3], k[3])
    flow.axes.unify(k[2], v[2])
    for seq, reason in ((q[3], "the scores sum over it"), (k[2], "a softmax over it"), (q[2], "positions")):
        flow.axes.keep_whole(reason, seq)
    out = op.outputs[0]
    dims = [q[0], q[1], q[2], v[3]]
    flow.set(out, dims)
    for number in op.outputs[1:]:
        flow.set(number, dims[:3])
    for number in op.inputs()[3:]:
        flow.align(flow.of(number), (q[0], q[1], q[2], k[2]))
