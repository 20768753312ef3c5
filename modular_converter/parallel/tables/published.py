"""Whether a plan holds at the default sizes of a configuration class: on the meta device, without weights."""

from __future__ import annotations

from modular_converter.parallel.choice.fit import fit
from modular_converter.parallel.choice.skeleton import skeleton_of
from modular_converter.parallel.errors import one_line
from modular_converter.parallel.plans.plan import Plan
from modular_converter.parallel.plans.resolve import fitting
from modular_converter.parallel.tiny.shrink import published
from modular_converter.parallel.tiny.target import Target


SIZES = (2, 3, 4, 8)
WHOLE = "whole: "


def holds_at(target: Target, plan: Plan) -> dict[int, str]:
    """Number of devices -> the reason why the plan does not hold at published sizes; empty if it holds.

    If only parts of it do not fit, they are whole on each device, and are named after ``WHOLE``.
    Widths, heads, vocabulary and experts are the defaults of the class; layers are few, because they are alike.
    """
    found: dict[int, str] = {}
    try:
        model = published(target)
        plan, skeleton = fitting(plan, model), skeleton_of(model)
    except Exception as error:  # a configuration whose defaults do not fit together
        return dict.fromkeys(SIZES, f"cannot be built: {one_line(error)}")
    for size in SIZES:
        try:
            whole = fit(skeleton, plan, size).whole
        except Exception as error:  # a rule does not fit, or nothing is left to shard
            found[size] = one_line(error)
            continue
        found[size] = f"{WHOLE}{', '.join(whole)}" if whole else ""
    return found
