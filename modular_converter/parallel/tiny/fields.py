"""Look up values of a configuration: a sub-configuration, an integer that has many names, a token id."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import re
import sys
from collections.abc import Iterator
from typing import Any


VISION = (
    "vision_config",
    "image_config",
    "vit_config",
    "encoder",
    "backbone_config",
    "image_model_config",
)
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
    for name in names:
        found = getattr(config, name, None)
        if is_config(found):
            return found
    for name in names:
        for inner in inner_configs(config):
            found = getattr(inner, name, None)
            if is_config(found):
                return found
    return config


def inner_configs(config: Any) -> Iterator[Any]:
    """The sub-configurations, in the order of their fields."""
    for field in config_fields(config):
        value = config.__dict__.get(field.name)
        if is_config(value):
            yield value


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
    for owner in (config, sub(config, *TEXT), *inner_configs(config)):
        found = integer(owner, tuple(names), -1)
        if found >= 0:
            return found
    return -1
