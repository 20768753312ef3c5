"""Plans made wrong on purpose, by changes that somebody could make by hand."""

import dataclasses


def mutations(plan):
    """(what was done, the changed plan) for every change that applies to a plan."""
    found = []
    for index, rule in enumerate(plan.rules):
        for what, changed in _changes(rule):
            rules = plan.rules[:index] + changed + plan.rules[index + 1 :]
            found.append((f"{rule}: {what}", dataclasses.replace(plan, rules=rules)))
    for name in plan.attributes:
        kept = tuple(other for other in plan.attributes if other != name)
        found.append((f"{name} does not shrink", dataclasses.replace(plan, attributes=kept)))
    return found


def _changes(rule):
    change = dataclasses.replace
    # Without `moe_tp_experts` the styles of the experts' weights sum by themselves: more collectives, the same numbers.
    if rule.style not in ("embedding_rowwise", "colwise_gather_output", "moe_tp_experts"):
        yield "is left out", ()
    if rule.style in ("colwise", "rowwise") and rule.dim is None:
        yield "the other style", (change(rule, style="rowwise" if rule.style == "colwise" else "colwise"),)
    if rule.style.endswith("rowwise"):
        dim = rule.dim if rule.dim is not None else 0 if rule.style == "embedding_rowwise" else 1
        module = rule.pattern.rpartition(".")[2] not in ("gate_up_proj", "down_proj") or "experts" not in rule.pattern
        if module:
            yield "its sum is left out", (change(rule, pattern=f"{rule.pattern}.weight", style="shard", dim=dim),)
    if rule.style == "colwise_gather_output":
        yield "its gather is left out", (change(rule, style="colwise"),)
    if rule.style == "packed_colwise":
        yield "its parts are left out", (change(rule, style="colwise", parts=()),)
