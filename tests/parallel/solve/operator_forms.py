"""Further forms of operators: other arguments, ranks and dimensions than those of the plain cases."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from tests.parallel.solve.operator_cases import A, Call, Draw, _on


FORMS: dict[str, Callable[[Draw], Call]] = {}
"""``operator: form`` -> its case."""
# Forms in which everything stays whole.
MUTE_FORMS = {
    "squeeze: all",
    "view: mixed",
    "roll: of_all_entries",
    "index: by_a_mask",
    "sum: all_at_once",
    "mean: all_at_once",
}


def forms(names: str, own: str) -> Callable[[Callable[[Draw, str, str], Call]], Any]:
    """Register each form of each of the operators."""

    def register(make: Callable[[Draw, str, str], Call]) -> Any:
        for name in names.split():
            for form in own.split():
                FORMS[f"{name}: {form}"] = lambda draw, name=name, form=form: make(draw, name, form)
        return make

    return register


@forms("view", "merged unflattened mixed part_of_an_axis")
def _views(draw, name, form):
    rows, heads, width = draw.lengths(3)
    runs = {
        "merged": lambda m: m.x.view(-1, m.x.shape[-1]), "unflattened": lambda m: m.x.flatten(1).unflatten(1, (m.heads, m.width)),
        "mixed": lambda m: m.x.view(rows, width, heads), "part_of_an_axis": lambda m: m.x.flatten(1).view(-1, m.heads * 2, m.width // 2),
    }  # fmt: skip
    return Call(runs[form], {"x": draw.normal(rows, heads, width)}, sizes={"heads": heads, "width": width})


@forms("slice", "from_behind last_ones every_fourth second_of_four every_third narrowed between")
def _sliced(draw, name, form):
    rows, first, second = draw.lengths(3)
    runs = {
        "from_behind": lambda m: m.x[:, -m.second :], "last_ones": lambda m: m.x[..., 1:, :], "every_fourth": lambda m: m.x[:, ::4],
        "second_of_four": lambda m: m.x[:, 1::4], "every_third": lambda m: m.x[:, ::3],
        "narrowed": lambda m: m.x.narrow(1, 0, m.first), "between": lambda m: m.x[:, m.first : m.first + m.second],
            }  # fmt: skip
    widths = {
        "every_fourth": 4 * first,
        "second_of_four": 4 * first,
        "every_third": 3 * first + 2,
        "between": first + 2 * second,
    }
    x = draw.normal(rows, widths.get(form, first + second), 4)
    return Call(runs[form], {"x": x}, sizes={"first": first, "second": second})


@forms("split", "chunks last uneven uneven_chunks")
def _split(draw, name, form):
    rows, width = draw.lengths(2)
    runs = {
        "chunks": lambda m: m.x.chunk(2, -1), "last": lambda m: m.x.split(m.width, -1),
        "uneven": lambda m: m.x.split(m.width + 1, -1), "uneven_chunks": lambda m: m.x.chunk(4, -1)[:-1],
    }  # fmt: skip
    return Call(
        runs[form], {"x": draw.normal(rows, 2 * width + 2 * (form == "uneven_chunks"))}, sizes={"width": width}
    )


@forms("select", "last first_of_one")
def _selected(draw, name, form):
    rows, width = draw.lengths(2)
    if form == "last":
        return _on({"x": draw.normal(rows, width)}, lambda x: x[..., -1])
    return _on({"x": draw.normal(rows, 1, width)}, lambda x: x[:, 0])


@forms("cat", "first last_of_three after_empty")
def _joined(draw, name, form):
    rows, width, other = draw.lengths(3)
    x, y = draw.normal(rows, width), draw.normal(other, width)
    if form == "first":
        return _on({"x": x, "y": y}, lambda x, y: torch.cat([x, y]))
    if form == "after_empty":
        return _on({"x": x}, lambda x: torch.cat([torch.zeros(0), x], 1))
    return _on({"x": x, "y": draw.normal(rows, other)}, lambda x, y: torch.cat([x, y, x], dim=-1))


@forms("stack", "first last")
def _stacked(draw, name, form):
    rows, width = draw.lengths(2)
    at = 0 if form == "first" else -1
    return _on({"x": draw.normal(rows, width), "y": draw.normal(rows, width)}, lambda x, y: torch.stack([x, y], at))


@forms("constant_pad_nd", "both_ends two_dimensions")
def _padded(draw, name, form):
    rows, width, last = draw.lengths(3)
    amounts = (1, 2) if form == "both_ends" else (0, 0, 1, -1)
    return _on({"x": draw.normal(rows, width, last)}, lambda x: F.pad(x, amounts))


@forms("flip roll", "two_dimensions")
@forms("roll", "of_all_entries")
def _moved(draw, name, form):
    if form == "of_all_entries":
        return _on({"x": draw.normal(*draw.lengths(3))}, lambda x: x.roll(3))
    run = (lambda x: x.flip(0, -1)) if name == "flip" else (lambda x: x.roll((1, 2), (0, -1)))
    return _on({"x": draw.normal(*draw.lengths(3))}, run)


@forms("t", "of_one_dimension")
def _turned(draw, name, form):
    return _on({"x": draw.normal(*draw.lengths(1))}, lambda x: x.t() * 2)


@forms("new_zeros", "of_one_row")
def _made(draw, name, form):
    width = draw.lengths(1)[0]
    return Call(lambda m: m.x + m.x.new_zeros((1, m.width)), {"x": draw.normal(3, width)}, sizes={"width": width})


@forms("copy", "a_row a_number")
def _copied(draw, name, form):
    rows, width = draw.lengths(2)
    x, y = draw.normal(rows, width), draw.normal(width)
    if form == "a_row":
        return _on({"x": x, "y": y}, lambda x, y: x.clone().copy_(y))
    return _on({"x": x}, lambda x: A.copy_(x.clone(), torch.tensor(2.0)))


@forms("squeeze", "one_of_two all not_one")
def _squeezed(draw, name, form):
    runs = {
        "one_of_two": lambda x: x[:, None, :, None].squeeze(1), "all": lambda x: x[None, :, None].squeeze(),
        "not_one": lambda x: x.squeeze(0),
    }  # fmt: skip
    return _on({"x": draw.normal(*draw.lengths(2))}, runs[form])


@forms("repeat", "last inner")
def _repeated(draw, name, form):
    rows, width, times = draw.lengths(3)
    runs = {"last": lambda m: m.x.repeat(1, m.times), "inner": lambda m: m.x.repeat(m.times, 1)}
    return Call(runs[form], {"x": draw.normal(rows, width)}, sizes={"times": times})


@forms("expand", "in_the_middle")
def _expanded(draw, name, form):
    rows, width, times = draw.lengths(3)
    return Call(
        lambda m: m.x[:, None].expand(-1, m.times, -1), {"x": draw.normal(rows, width)}, sizes={"times": times}
    )


@forms("view_as_real", "times_a_pair")
def _pairs(draw, name, form):
    rows, width = draw.lengths(2)
    given = {"x": draw.normal(rows, width), "y": draw.normal(rows, width), "pair": draw.normal(2)}
    return _on(given, lambda x, y, pair: torch.view_as_real(torch.complex(x, y)) * pair)


@forms("glu", "last")
def _gated(draw, name, form):
    rows, width = draw.lengths(2)
    return _on({"x": draw.normal(rows, 2 * width)}, F.glu)


@forms("mm", "flattened")
def _multiplied(draw, name, form):
    batch, rows, inner, width = draw.lengths(4)
    return _on({"x": draw.normal(batch, rows, inner), "w": draw.normal(inner, width)}, torch.matmul)


@forms("addmm", "with_a_row with_one")
def _added(draw, name, form):
    rows, inner, width = draw.lengths(3)
    bias = draw.normal(width if form == "with_a_row" else 1)
    return _on({"bias": bias, "x": draw.normal(rows, inner), "y": draw.normal(inner, width)}, torch.addmm)


@forms("bmm", "contracted_in_two")
def _contracted(draw, name, form):
    batch, rows, inner, other = draw.lengths(4)
    x, y = draw.normal(batch, rows, inner), draw.normal(batch, other, inner)
    return _on({"x": x, "y": y}, lambda x, y: torch.einsum("bri,boi->bro", x, y))


@forms("convolution", "with_bias over_two transposed transposed_in_groups transposed_with_bias each_alone")
def _convolved(draw, name, form):
    batch, channels, out = draw.lengths(3)
    groups = {"transposed_in_groups": 2, "each_alone": 2 * channels}.get(form, 1)
    entering, leaving = 2 * channels, 2 * channels if form == "each_alone" else 2 * out
    places = (5, 5) if form == "over_two" else (9,)
    transposed = form.startswith("transposed")
    kernel = (entering, leaving // groups) if transposed else (leaving, entering // groups)
    tensors = {"x": draw.normal(batch, entering, *places), "weight": draw.normal(*kernel, *(3 for _ in places))}
    if form.endswith("with_bias"):
        tensors["bias"] = draw.normal(leaving)
    run = F.conv_transpose1d if transposed else F.conv2d if form == "over_two" else F.conv1d
    return Call(
        lambda m: run(*(getattr(m, name) for name in tensors), groups=m.groups), tensors, sizes={"groups": groups}
    )


@forms("linalg_solve_triangular", "from_the_right without_a_batch")
def _solved(draw, name, form):
    batch, rows, columns = draw.lengths(3)
    shape = () if form == "without_a_batch" else (batch,)
    matrix = draw.normal(*shape, rows, rows).triu() + 3 * torch.eye(rows)
    right = draw.normal(*shape, *((columns, rows) if form == "from_the_right" else (rows, columns)))
    left = form != "from_the_right"
    return _on({"a": matrix, "b": right}, lambda a, b: torch.linalg.solve_triangular(a, b, upper=True, left=left))


@forms("sum mean", "kept two_at_once all_at_once last_but_one")
def _reduced(draw, name, form):
    given = {"kept": {"dim": 1, "keepdim": True}, "two_at_once": {"dim": (0, -1)}, "last_but_one": {"dim": -2}}
    run = getattr(torch, name)
    return _on({"x": draw.normal(*draw.lengths(3))}, lambda x: run(x, **given.get(form, {"dim": ()})))


@forms("native_layer_norm", "over_two plain without_bias")
def _normed(draw, name, form):
    batch, rows, width = draw.lengths(3)
    shape = (rows, width) if form == "over_two" else (width,)
    given = {"x": draw.normal(batch, rows, width), **({} if form == "plain" else {"weight": draw.normal(*shape)})}
    return _on(given, lambda x, *weights: F.layer_norm(x, shape, *weights))


@forms("_scaled_dot_product_flash_attention_for_cpu", "masked masked_by_head grouped")
def _attention(draw, name, form):
    batch, heads, rows, keys = draw.lengths(4)
    groups = heads // 2 if form == "grouped" else heads
    given = {"q": draw.normal(batch, heads, rows, 16)}
    given |= {name: draw.normal(batch, groups, keys, 16) for name in "kv"}
    if form != "grouped":
        given["mask"] = draw.normal(*((1, heads) if form == "masked_by_head" else (batch, 1)), rows, keys)
    grouped = form == "grouped"
    return _on(given, lambda *tensors: F.scaled_dot_product_attention(*tensors, enable_gqa=grouped))


@forms("embedding", "of_rows_of_ids")
def _embedded(draw, name, form):
    rows, width, batch, length = draw.lengths(4)
    ids = draw.ids(rows, batch, length)
    return _on({"ids": ids, "x": draw.normal(rows, width)}, F.embedding)


@forms("index", "second two_together two_apart by_a_mask by_a_column")
def _indexed(draw, name, form):
    rows, width, last = draw.lengths(3)
    x, number = draw.normal(rows, width, last), 6
    ids, others = draw.ids(rows, number), draw.ids(4, number)
    runs = {
        "second": lambda m: m.x[:, m.others], "two_together": lambda m: m.x[m.ids, m.others],
        "two_apart": lambda m: m.x[m.ids, :, m.others], "by_a_mask": lambda m: m.x[m.mask],
        "by_a_column": lambda m: m.x[m.ids[:, None], m.others],
    }  # fmt: skip
    return Call(runs[form], {"x": x}, {"ids": ids, "others": others, "mask": torch.arange(rows) % 3 == 0})


@forms("gather", "in_some_rows")
@forms("index_select gather", "last")
def _picked(draw, name, form):
    rows, width, number = draw.lengths(3)
    if form == "in_some_rows":
        at = draw.ids(width, rows, number)
        return _on({"x": draw.normal(2 * rows, width), "at": at}, lambda x, at: x.gather(-1, at))
    x, at = draw.normal(rows, width), draw.ids(width, rows, number)
    if name == "gather":
        return _on({"x": x, "at": at}, lambda x, at: x.gather(-1, at))
    return Call(lambda m: m.x.index_select(-1, m.ids), {"x": x}, {"ids": at[0]})


@forms("index_add index_copy scatter_add scatter", "last")
def _written(draw, name, form):
    rows, width = draw.lengths(2)
    ids, y = torch.randperm(width, generator=draw.generator)[:3], draw.normal(rows, 3)
    given = {"x": draw.normal(rows, width), "y": y}
    if name.startswith("index"):
        return Call(lambda m: getattr(m.x, name)(-1, m.ids, m.y), given, {"ids": ids})
    return _on(given | {"at": ids.repeat(rows, 1)}, lambda x, y, at: getattr(x, name)(-1, at, y))


@forms("topk", "in_order all_of_them")
def _sorted(draw, name, form):
    rows, width = draw.lengths(2)
    return _on({"x": draw.normal(rows, width)}, lambda x: x.topk(width if form == "all_of_them" else 2))
