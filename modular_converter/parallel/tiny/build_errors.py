"""The message for a model that cannot be built small: each reason once, and configuration values that may help."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from typing import Any

from modular_converter.parallel.errors import BuildError
from modular_converter.parallel.tiny.fields import config_fields, names_read


def explained(reasons: Sequence[tuple[str, str]], config_class: type[Any]) -> str:
    """Lines for the message of an error.

    Args:
        reasons: (strategy of shrinking, the reason why it failed).
    """
    strategies: dict[str, list[str]] = {}
    for strategy, reason in reasons:
        strategies.setdefault(reason, []).append(strategy)
    lines = [f"{', '.join(names)}: {reason}" for reason, names in strategies.items()]
    return "".join(f"\n  {line}" for line in [*lines, _advice(" ".join(strategies), config_class)])


def _advice(reasons: str, config_class: type[Any]) -> str:
    missing = re.search(r"No module named '([\w.]+)'", reasons)
    if missing:
        return f"it needs the library {missing[1].partition('.')[0]}, which is not installed"
    if re.search(r"requires the .* library", reasons):
        return "it needs the library that is named above, which is not installed"
    known = [field.name for field in config_fields(config_class)]
    named = [name for name in known if _names(reasons, name)]
    if named:
        return f"values that are named there: {', '.join(named)}; give what fits with --set {named[0]}=VALUE"
    return "give configuration values with --set FIELD=VALUE; the model's own code, not the size, may be at fault"


def _names(text: str, field: str) -> bool:
    """Whether a text names a field, also in words: "the hidden size", "number of attention heads"."""
    words = "[_ ]".join(map(re.escape, field.split("_"))).replace("num[_ ]", "(?:num[_ ]|number of )", 1)
    return len(field) > 3 and re.search(rf"\b{words}\b", text) is not None


def check_fields(config_class: type[Any], names: Sequence[str], model_class: type[Any] | None = None) -> None:
    """Raise ``BuildError`` with the nearest names for a field that the configuration lacks, and the model does not read.

    A dotted name is checked up to its first dot.
    """
    fields = config_fields(config_class)
    if not fields:
        return
    read = names_read(model_class.__module__) if model_class is not None else frozenset()
    known = sorted({field.name for field in fields} | _attributes(config_class) | read)
    for name in names:
        if name.partition(".")[0] not in known:
            near = difflib.get_close_matches(name.partition(".")[0], known, n=3)
            hint = f"; did you mean {', '.join(near)}?" if near else ""
            raise BuildError(f"{config_class.__name__} has no value {name!r}{hint}")


def _attributes(config_class: type[Any]) -> set[str]:
    try:
        return set(vars(config_class()))
    except Exception:  # a configuration without defaults has its fields only
        return set()
