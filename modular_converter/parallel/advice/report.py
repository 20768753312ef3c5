"""Memory and advice as text and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from modular_converter.parallel.advice.candidates import Advice, LayoutForecast
from modular_converter.parallel.advice.devices import GIB, Device
from modular_converter.parallel.advice.memory import Footprint, LayoutSetting


_LEAST_NAMED = 1e6
"""Bytes from which a weight that is whole on each rank is named."""
_PARTS = ("weights", "gradients", "optimizer", "buffers")
Table = tuple[list[str], list[list[str]]]


def gib(size: float) -> str:
    """A number of bytes in GiB, or MiB if it is small."""
    return f"{size / GIB:.2f} GiB" if size >= GIB / 10 else f"{size / 2**20:.1f} MiB"


def memory_table(found: Footprint, device: Device) -> Table:
    """The rows of a device's memory, in the order in which they add up."""
    peak = found.peak
    rows = [
        ["weights", gib(found.weights), "exact"],
        ["optimizer", gib(found.optimizer), "exact, between steps"],
        ["buffers", gib(found.buffers), "exact"],
        ["gradients", gib(peak.gradients), f"at the peak; all together {gib(found.gradients)}"],
        ["activations", gib(peak.activations), "at the peak" + f"; caches {gib(found.caches)}" * bool(found.caches)],
        ["gathered weights", gib(peak.gathered), "at the peak"],
        ["workspaces", gib(found.workspace), "of libraries"],
        ["allocated", gib(found.allocated), f"the peak: {peak.name}"],
        ["contexts", gib(found.outside), "of the driver, and buffers of collectives"],
        ["spare", gib(found.spare), "that an allocator cannot use"],
        ["all", gib(found.total), f"of {gib(device.memory)} of {device.name}"],
    ]
    return ["a device", "", ""], rows


def replicated_lines(found: Footprint, ranks: int) -> list[str]:
    """A line for the weights that each rank of a layer has whole, if there are large ones."""
    large = [(name, size) for name, size in found.replicated if size >= _LEAST_NAMED]
    if not large:
        return []
    whole = sum(size for _, size in found.replicated)
    names = ", ".join(f"{name} ({gib(size)})" for name, size in large[:5])
    more = f", and {len(large) - 5} more" if len(large) > 5 else ""
    return [f"whole on each of {ranks} ranks, {gib(whole)} in all: {names}{more}"]


def memory_value(found: Footprint, setting: LayoutSetting) -> dict[str, Any]:
    """The memory as plain values, in bytes."""
    return {
        "layout": str(setting.layout),
        "options": setting.options(),
        **{name: round(getattr(found, name)) for name in _PARTS},
        "at_peak": {
            "moment": found.peak.name,
            "gradients": round(found.peak.gradients),
            "activations": round(found.peak.activations),
            "gathered_weights": round(found.peak.gathered),
        },
        "caches": round(found.caches),
        "workspaces": round(found.workspace),
        "allocated": round(found.allocated),
        "contexts": round(found.outside),
        "spare": round(found.spare),
        "total": round(found.total),
        "replicated": [{"name": name, "bytes": round(size)} for name, size in found.replicated],
    }


def advice_table(advice: Advice, most: int) -> Table:
    """The candidates: those that run, then those that do not, and why."""
    trains = not advice.question.tokens or any(one.time and one.time.update for one in advice.candidates)
    head = ["layout", "options", "memory", "a step" if trains else "an answer", "tokens/s", "why"]
    runs = [one for one in advice.candidates if one.runs]
    rest = [one for one in advice.candidates if not one.runs]
    rows = [_row(one, advice) for one in (*runs[:most], *rest[:most])]
    left = len(advice.candidates) - len(rows)
    return head, rows + ([["…", f"{left} more with --format json", "", "", "", ""]] if left > 0 else [])


def _row(one: LayoutForecast, advice: Advice) -> list[str]:
    setting = one.setting
    memory = gib(one.memory.total) if one.memory else ""
    step = rate = ""
    if one.time is not None:
        low, high = one.time.band
        step = f"{one.time.seconds:.3g} s ({low:.3g} to {high:.3g})"
        rate = f"{tokens_a_second(one, advice):.3g}"
    return [str(setting.layout), setting.options(), memory, step, rate, one.why_not or "the fastest that fits"]


def tokens_a_second(one: LayoutForecast, advice: Advice) -> float:
    """Tokens of all devices together: that are learned from, or written."""
    assert one.time is not None
    if one.setting.tokens:
        replicas = advice.question.cluster.size // one.setting.layout.size
        return one.setting.rows * one.setting.tokens * replicas / one.time.seconds
    return one.setting.rows * one.setting.layout.data * (advice.length or 1) / one.time.seconds


def recommendation(advice: Advice) -> str:
    """One sentence: what to take, or what is missing."""
    best, cluster = advice.best, advice.question.cluster
    if best is None:
        nearest = next((one for one in advice.candidates if one.memory), None)
        why = f"the nearest, {nearest.setting}, {nearest.why_not}" if nearest else advice.candidates[0].why_not
        return f"No layout of {advice.model} fits on {cluster}: {why}."
    assert best.memory is not None and best.time is not None
    low, high = best.time.band
    kind = "an answer" if best.setting.tokens else "a step"
    return (
        f"Take {best.setting} for {advice.model} ({advice.parameters / 1e9:.3g} billion parameters) on {cluster}: "
        f"{gib(best.memory.total)} of {gib(cluster.device.memory)} a device, {kind} in {low:.3g} to {high:.3g} s."
    )


def line_to_run(advice: Advice, model: str) -> str:
    """The line that runs the choice; empty if nothing fits."""
    best, cluster = advice.best, advice.question.cluster
    if best is None:
        return ""
    setting = best.setting
    if setting.tokens:
        return f'parallelize("{model}", num_gpus={setting.layout.size})'
    processes = f"torchrun --nnodes {cluster.nodes} --nproc-per-node {cluster.each}"
    options = setting.options()
    training = f", training=Training({options})" if options else ""
    return f'{processes} train.py  # with parallelize(model, layout="{setting.layout}"{training})'


def advice_value(advice: Advice, model: str) -> dict[str, Any]:
    """The advice as plain values: bytes and seconds."""
    return {
        "model": advice.model,
        "parameters": advice.parameters,
        "devices": str(advice.question.cluster),
        "recommended": recommendation(advice),
        "line": line_to_run(advice, model),
        "candidates": [_candidate_value(one, advice) for one in advice.candidates],
    }


def _candidate_value(one: LayoutForecast, advice: Advice) -> dict[str, Any]:
    time = one.time
    return {
        "layout": str(one.setting.layout),
        "options": one.setting.options(),
        "rows": one.setting.rows,
        "runs": one.runs,
        "why_not": one.why_not,
        "memory": memory_value(one.memory, one.setting) if one.memory else None,
        "seconds": None
        if time is None
        else {
            "all": time.seconds,
            "low": time.band[0],
            "high": time.band[1],
            "compute": time.compute,
            "exchange": time.exchange,
            "bubble": time.bubble,
            "update": time.update,
            "token": time.token,
        },
        "tokens_a_second": None if time is None else tokens_a_second(one, advice),
    }


def plain_table(table: Table) -> list[str]:
    """A table as lines of text with columns of equal width."""
    rows: Sequence[Sequence[str]] = [table[0], *table[1]]
    widths = [max(len(row[column]) for row in rows) for column in range(len(table[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]
