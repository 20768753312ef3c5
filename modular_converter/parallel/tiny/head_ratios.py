"""The ratios of heads to key/value heads in a configuration, and settings for other ratios."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

from modular_converter.parallel.tiny.fields import HEAD_FIELDS, KV_FIELDS, is_config, raw


@dataclass(frozen=True)
class HeadPair:
    """The numbers of heads and key/value heads of an attention; ``field`` is the dotted name of the latter."""

    field: str
    heads: int
    kv: int

    @property
    def kind(self) -> str:
        """How heads share key/value heads: ``plain`` (not at all), ``single`` (all share one) or ``grouped``."""
        return "plain" if self.kv == self.heads else "single" if self.kv == 1 else "grouped"

    def of_kind(self, kind: str) -> int:
        """The number of key/value heads in another kind; unchanged if there are too few heads for groups."""
        if kind == "grouped":
            return self.heads // 2 if self.heads % 4 == 0 else self.kv
        return 1 if kind == "single" else self.heads


def head_pairs(config: Any, prefix: str = "", outer: int | None = None) -> Iterator[HeadPair]:
    """The pairs of a configuration and of its sub-configurations.

    If the number of key/value heads is None, it equals the number of heads.

    Args:
        outer: heads of the outer configuration, for a configuration that has only key/value heads.
    """
    heads = _heads(config, "") or outer
    for name, value in list(getattr(config, "__dict__", {}).items()):
        if is_config(value):
            yield from head_pairs(value, f"{prefix}{name}.", heads)
            continue
        spelling = next((one for one in KV_FIELDS if name.endswith(one)), None)
        if spelling is None:
            continue
        count, kv = _heads(config, name.removesuffix(spelling)) or heads, raw(config, name)
        if count and (kv is None or type(kv) is int and kv > 0):
            yield HeadPair(prefix + name, count, kv or count)


def _heads(config: Any, prefix: str) -> int | None:
    found = (raw(config, prefix + name) for name in HEAD_FIELDS)
    return next((value for value in found if type(value) is int and value > 0), None)


def ratios_like(config: Any, small: Any) -> dict[str, int]:
    """Settings that give a small configuration the kinds of another configuration."""
    kinds = {pair.field: pair.kind for pair in head_pairs(config)}
    wanted = ((pair, pair.of_kind(kinds.get(pair.field, pair.kind))) for pair in head_pairs(small))
    return {pair.field: kv for pair, kv in wanted if kinds.get(pair.field, pair.kind) != pair.kind and kv != pair.kv}


def other_ratios(small: Any, given: Collection[str]) -> tuple[dict[str, int], str]:
    """Settings that swap the kinds ``plain`` and ``grouped``, and their description.

    Args:
        given: fields that the caller has set; they are unchanged.
    """
    found: dict[str, int] = {}
    said: dict[str, None] = {}
    for pair in head_pairs(small):
        kv = pair.of_kind({"plain": "grouped", "grouped": "plain"}.get(pair.kind, pair.kind))
        if kv != pair.kv and not _is_given(pair.field, given):
            found[pair.field] = kv
            said[f"{kv} key/value heads of {pair.heads}"] = None
    return found, " and ".join(said)


def wider_heads(small: Any, given: Collection[str]) -> dict[str, int]:
    """Settings that double the width of heads if it equals their number, so that a plan that confuses the two fails."""
    found: dict[str, int] = {}
    for pair in head_pairs(small):
        path, dot, _ = pair.field.rpartition(".")
        config = small
        for name in path.split(".") if path else ():
            config = raw(config, name)
        hidden, width = raw(config, "hidden_size"), raw(config, "head_dim")
        if type(width) is int:
            wide = {"head_dim": 2 * width} if width == pair.heads else {}
        else:
            wide = {"hidden_size": 2 * hidden} if type(hidden) is int and hidden == pair.heads**2 else {}
        found |= {path + dot + name: value for name, value in wide.items()}
    return {field: value for field, value in found.items() if not _is_given(field, given)}


def _is_given(field: str, given: Collection[str]) -> bool:
    return any(field == name or field.startswith(f"{name}.") for name in given)
