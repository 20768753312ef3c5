"""The classes that hold the entries of a plan: transformers gathers a model's plan from its parts when it is built.

Entries of a base model, and of each sub-model with a configuration class of its own, are ``base_model_tp_plan`` of the
configuration class; entries of a head are ``_tp_plan`` of the head's model class.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from modular_converter.parallel.errors import WriteError
from modular_converter.parallel.plans.text_checks import entries_for


BASE_PLAN, HEAD_PLAN = "base_model_tp_plan", "_tp_plan"


@dataclass(frozen=True)
class Setting:
    """An attribute to set on a class."""

    owner: type[Any]
    attribute: str
    entries: Mapping[str, str]

    @property
    def held(self) -> dict[str, str]:
        """The present value of the class, own or inherited."""
        return dict(getattr(self.owner, self.attribute, None) or {})

    @property
    def is_current(self) -> bool:
        """Whether the class already has the same entries, in any order."""
        return self.held == dict(self.entries)


def base_settings(model: torch.nn.Module, entries: Mapping[str, str]) -> list[Setting]:
    """The entries of a base model, distributed among its configuration class and those of its sub-models.

    The entry that the loader adds itself (the vocabulary of ``embed_tokens``) is left out. A part without entries is in
    the result only if its class has entries now.

    Raises ``WriteError`` if two sub-models share a configuration class and need different styles for one entry.
    """
    parts = list(_parts(model))
    shares: dict[type[Any], dict[str, str]] = {type(part.config): {} for _, part in parts}
    added = {f"{prefix}{key}": style for prefix, part in parts for key, style in _added_by_loader(part).items()}
    for key, style in entries.items():
        if added.get(key) == style:
            continue
        prefix, part = max((one for one in parts if key.startswith(one[0])), key=lambda one: len(one[0]))
        config, name = type(part.config), key[len(prefix) :]
        if shares[config].setdefault(name, style) != style:
            raise WriteError(
                f"{config.__name__}: `{name}` is {shares[config][name]} in one part of the model and {style} in "
                "another; give the parts configuration classes of their own"
            )
    settings = [Setting(config, BASE_PLAN, share) for config, share in shares.items()]
    return [setting for setting in settings if setting.entries or setting.held]


def _parts(model: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """(Prefix, part) of the model, and of the children with another configuration, whose plans the library adds."""
    yield prefix, model
    for name, child in model.named_children():
        if hasattr(child, "base_model_prefix") and type(child.config) is not type(model.config):
            yield from _parts(child, f"{prefix}{name}.")


def _added_by_loader(part: Any) -> dict[str, str]:
    embedding = isinstance(getattr(part, "embed_tokens", None), torch.nn.Embedding)
    return {"embed_tokens": "embedding_rowwise"} if embedding else {}


@contextmanager
def holding(settings: Sequence[Setting]) -> Iterator[None]:
    """A context in which the classes have the settings, in this process."""
    before = [(one.owner, one.attribute, one.owner.__dict__.get(one.attribute, _ABSENT)) for one in settings]
    try:
        for one in settings:
            setattr(one.owner, one.attribute, dict(one.entries))
        yield
    finally:
        for owner, attribute, value in before:
            if value is _ABSENT:
                delattr(owner, attribute)
            else:
                setattr(owner, attribute, value)


_ABSENT: Any = object()


def gathered_plan(model: torch.nn.Module) -> dict[str, str]:
    """The plan that the library gathers for a model's class and configuration, for the layers that the model has.

    It is gathered when a model is built, so the model is built again, without memory.
    """
    kind: Any = type(model)
    with torch.device("meta"):
        fresh: Any = kind(model.config)
    return entries_for(fresh.tp_plan or {}, model)
