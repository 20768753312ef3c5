"""The prefix that replaces the neighbour's name in everything that comes from the neighbour.

Usually it is the target model's own cased name. `class EmuTextMLP(LlamaMLP)` in model `emu` says that
what comes from llama is called `EmuText…`. Pure functions over names.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Prefix:
    """The prefix chosen for one neighbour, and why."""

    cased: str
    """`EmuText`."""
    asked: tuple[str, ...]
    """The prefixes that the classes ask for, most wanted first."""
    collides_with: str = ""
    """The neighbour's class with which the wanted prefix would collide, if this has decided."""

    @property
    def is_ambiguous(self) -> bool:
        """Whether the classes ask for more than one."""
        return len(self.asked) > 1 and not self.collides_with


def common_suffix(name: str, other: str) -> str:
    """The longest common suffix of two names."""
    length = 0
    while length < min(len(name), len(other)) and name[-length - 1] == other[-length - 1]:
        length += 1
    return name[len(name) - length :]


def asked_prefix(child: str, parent: str, own: str, neighbour: str) -> str | None:
    """The prefix that `class child(parent)` asks for; None if the two names do not tell.

    Args:
        own: the target model's cased name.
        neighbour: the neighbour's cased name.
    """
    if child == parent:
        return None
    suffix = common_suffix(child, parent)
    if suffix[:1].isupper() and suffix not in (child, parent):
        left = child[: len(child) - len(suffix)]
        return own if len(left) < len(own) and own in child else left
    return own + neighbour if child == own + parent else own


def choose_prefix(
    children: Iterable[tuple[str, str]], own: str, neighbour: str, neighbour_classes: Sequence[str]
) -> Prefix:
    """Choose the prefix for one neighbour.

    The most asked for wins; on a tie the model's own name with the neighbour's behind it (`EmuLlama`), then the model's
    own, else the one asked for last. A prefix that only adds to the
    model's own (`EmuText` = `Emu` + `Text`) falls back to the own one where the neighbour tells such classes apart
    already (it has a `LlamaText…`): its own distinction would be lost.

    Args:
        children: `(child, parent)` for each class that inherits from the neighbour, in order.
        neighbour_classes: the names of the neighbour's classes, not renamed.
    """
    asked = [prefix for child, parent in children if (prefix := asked_prefix(child, parent, own, neighbour))]
    if not asked:
        return Prefix(own, ())
    counts = Counter(asked)
    ranked = tuple(sorted(counts, key=lambda prefix: (-counts[prefix], asked.index(prefix))))
    most = [prefix for prefix in asked if counts[prefix] == counts[ranked[0]]]
    chosen = next((prefix for prefix in (own + neighbour, own) if prefix in most), most[-1])
    if chosen != own and chosen.startswith(own):
        taken = neighbour + chosen[len(own) :]
        for name in neighbour_classes:
            if name.startswith(taken):
                return Prefix(own, ranked, name)
    return Prefix(chosen, ranked)
