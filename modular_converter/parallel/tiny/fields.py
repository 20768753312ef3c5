"""The fields of configurations, which models name and nest in many ways, and errors that name a field."""

from __future__ import annotations

import dataclasses
import difflib
import functools
import inspect
import re
import sys
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from modular_converter.parallel.errors import BuildError


VISION = ("vision_config", "image_config", "vit_config", "encoder", "backbone_config", "image_model_config")
AUDIO = ("audio_config", "audio_encoder_config", "encoder_config", "audio_encoder", "encoder")
# The spellings of head counts. A key/value field may begin with a word, such as "encoder_", and end with a spelling.
HEAD_FIELDS = (
    "num_attention_heads",
    "n_head",
    "num_heads",
    "n_heads",
    "attention_heads",
    "num_query_heads",
    "encoder_attention_heads",
    "heads",
    "nhead",
)
KV_FIELDS = (
    "num_key_value_attention_heads",
    "num_key_value_heads",
    "n_head_kv",
    "num_kv_heads",
    "kv_n_heads",
    "kv_heads",
    "multi_query_group_num",
)
TEXT = ("text_config", "language_config", "thinker_config", "llm_config", "decoder", "text_encoder")
_READ = re.compile(r"""config(?:\.(\w+)|,\s*["'](\w+)["'])""")


@dataclasses.dataclass(frozen=True)
class ConfigField:
    """A field of a configuration.

    Attributes:
        default: ``dataclasses.MISSING`` if there is none.
        init: whether the constructor takes it.
        annotation: its type as text.
        by_hand: whether it is a parameter of a handwritten ``__init__``, not a field of the dataclass.
    """

    name: str
    default: Any
    init: bool = True
    annotation: str = ""
    by_hand: bool = False


def config_fields(config: Any) -> tuple[ConfigField, ...]:
    """The fields of a configuration or of its class; empty if it is not a dataclass."""
    return _fields_of_class(config if isinstance(config, type) else type(config))


@functools.cache
def _fields_of_class(kind: type[Any]) -> tuple[ConfigField, ...]:
    declared = dataclasses.fields(kind) if dataclasses.is_dataclass(kind) else ()
    found = {field.name: ConfigField(field.name, _default(field), field.init, str(field.type)) for field in declared}
    for owner in kind.__mro__ if declared else ():
        made = vars(owner).get("__init__")
        for item in inspect.signature(made).parameters.values() if inspect.isfunction(made) else ():
            if item.name != "self" and item.kind in (item.POSITIONAL_OR_KEYWORD, item.KEYWORD_ONLY):
                default = dataclasses.MISSING if item.default is item.empty else item.default
                found.setdefault(item.name, ConfigField(item.name, default, by_hand=True))
    return tuple(found.values())


def _default(field: dataclasses.Field[Any]) -> Any:
    made = field.default_factory
    return field.default if made is dataclasses.MISSING else made()


@functools.cache
def names_read(module: str) -> frozenset[str]:
    """The names of values of configurations in a module's code, ``config.name`` and ``getattr(config, "name", …)``."""
    try:
        text = inspect.getsource(sys.modules[module])
    except (KeyError, OSError, TypeError):
        return frozenset()
    return frozenset(plain or quoted for plain, quoted in _READ.findall(text))


def is_config(value: Any) -> bool:
    """Whether a field's value is a configuration."""
    return hasattr(value, "model_type") and dataclasses.is_dataclass(value)


def is_list_of_ints(value: Any) -> bool:
    """Whether a field's value is a non-empty list or tuple of integers."""
    return isinstance(value, (list, tuple)) and bool(value) and all(type(item) is int for item in value)


def sub(config: Any, *names: str) -> Any:
    """The first existing sub-configuration of these names, here or one level below; else the configuration itself."""
    levels = [[config], [one for prefix, one in configs_within(config) if prefix.count(".") == 1]]
    found = (getattr(one, name, None) for level in levels for name in names for one in level)
    return next(filter(is_config, found), config)


def configs_within(config: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """(Prefix of dotted names, configuration) of a configuration and of all inside it, from the outside in."""
    yield prefix, config
    for name, value in list(getattr(config, "__dict__", {}).items()):
        if is_config(value):
            yield from configs_within(value, f"{prefix}{name}.")


def raw(config: Any, name: str) -> Any:
    """A field's value; None if it is missing. If it differs by layer, the value of all layers without their own."""
    try:
        return getattr(config, name, None)
    except RuntimeError:
        return config._getattr_without_heterogeneous_validation(name, None)


def integer(config: Any, names: tuple[str, ...], default: int) -> int:
    """The value of the first of these fields that is an integer, or whose first entry is one."""
    for name in names:
        value = raw(config, name)
        if isinstance(value, (list, tuple)) and value and isinstance(value[0], int):
            return value[0]
        if isinstance(value, int) and not isinstance(value, bool):
            return value
    return default


def pair(config: Any, names: tuple[str, ...], default: int) -> tuple[int, int]:
    """Height and width, from the first of these fields that has them."""
    for name in names:
        value = raw(config, name)
        if isinstance(value, dict) and {"height", "width"} <= set(value):
            return int(value["height"]), int(value["width"])
        if isinstance(value, (list, tuple)) and len(value) >= 2 and all(isinstance(item, int) for item in value):
            return value[-2], value[-1]
        if isinstance(value, int) and not isinstance(value, bool):
            return value, value
    return default, default


def token(config: Any, kind: str) -> int:
    """The id of the placeholder token for a kind of input (``image``, ``video``, ``audio``); -1 if there is none."""
    suffixes = ("_token_id", "_token_index", "_patch_token_id", "_patch_id", "_soft_token_id")
    names = [kind + suffix for suffix in suffixes] + ["media_placeholder_token_id"]
    for owner in (config, sub(config, *TEXT), *(one for _, one in configs_within(config))):
        found = integer(owner, tuple(names), -1)
        if found >= 0:
            return found
    return -1


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
    import torch  # other uses of this file need none

    kind = torch.get_default_dtype()
    if kind is not torch.float32 and re.search(r"\b(dtype|Float|Double|Half|BFloat16)\b", reasons):
        return (
            f"torch's default type is {str(kind).removeprefix('torch.')}, in which small models are built: call "
            "torch.set_default_dtype(torch.float32) before, and set another type after it"
        )
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
    texts: dict[str, None] = {}
    for pair in head_pairs(small):
        kv = pair.of_kind({"plain": "grouped", "grouped": "plain"}.get(pair.kind, pair.kind))
        if kv != pair.kv and not _is_given(pair.field, given):
            found[pair.field] = kv
            texts[f"{kv} key/value heads of {pair.heads}"] = None
    return found, " and ".join(texts)


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


def dropout_rates(holder: object) -> list[str]:
    """The names of the dropout rates of a module or configuration: `dropout`, `drop_path`, `p`."""
    return [
        name for name, value in vars(holder).items() if isinstance(value, float) and ("drop" in name or name == "p")
    ]


def skips_layers(name: str, rate: object) -> bool:
    """Whether an attribute is the rate of skipped layers."""
    return "layerdrop" in name and isinstance(rate, float)
