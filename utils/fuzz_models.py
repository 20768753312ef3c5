"""Small models for random edits: their conversion takes milliseconds."""

from __future__ import annotations

from pathlib import Path


HEIR = """\
from ..{old}.configuration_{old} import {Old}Config
from ..{old}.modeling_{old} import {Old}Layer, {Old}Model


class {New}Config({Old}Config):
    {name}_size = 3


class {New}Layer({Old}Layer):
    def __init__(self, config):
        super().__init__(config)
        self.{name} = config.{name}_size


class {New}Model({Old}Model):
    pass


__all__ = ["{New}Config", "{New}Model"]
"""
BASE = {
    "configuration_base.py": "class BaseConfig:\n    base_size = 1\n",
    "modeling_base.py": """\
from torch import nn

from .configuration_base import BaseConfig


def scale(x):
    return x * 2


class BaseLayer(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.size = config.base_size

    def forward(self, x):
        return scale(x) + self.size


class BaseModel(nn.Module):
    config: BaseConfig

    def __init__(self, config):
        super().__init__()
        self.layers = nn.ModuleList([BaseLayer(config) for _ in range(2)])
""",
}
PARENTS = {"aaa": "base", "bbb": "aaa", "ccc": "bbb", "ddd": "base", "eee": "ddd"}
"""The small models: three in a chain, and two beside them."""


def write_small(models: Path) -> None:
    """Write a base and its heirs into a folder of models, each into its own folder."""
    for name, text in BASE.items():
        (models / "base").mkdir(parents=True, exist_ok=True)
        (models / "base" / name).write_text(text)
    for name, old in PARENTS.items():
        (models / name).mkdir()
        text = HEIR.format(old=old, Old=old.title(), New=name.title(), name=name)
        (models / name / f"modular_{name}.py").write_text(text)
