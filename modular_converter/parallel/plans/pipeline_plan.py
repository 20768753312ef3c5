"""The ``PipelinePlan`` value: modules in order, with the names of their inputs and outputs."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from modular_converter.parallel.errors import PlanFormatError
from modular_converter.parallel.plans.text_checks import LINE, checked_line, from_json, record_schema, shown


_NAME = re.compile(r"[A-Za-z_]\w*")
_MODULE = re.compile(r"\w+(\.\w+)*")
# The path of a model that is a list of layers itself, in text.
_WHOLE = "."


@dataclass(frozen=True)
class Entry:
    """A module of the chain: its path ("" for the model itself), and the names of its inputs and outputs."""

    module: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.module or _WHOLE} {','.join(self.inputs) or '-'} -> {','.join(self.outputs) or '-'}"


@dataclass(frozen=True)
class PipelinePlan:
    """A pipeline plan of a model: the modules between which it may be cut, and the tensors between them."""

    model: str
    entries: tuple[Entry, ...] = ()

    def __post_init__(self) -> None:
        checked_line(self.model, "the model's name")

    def __str__(self) -> str:
        return "".join([f"pipeline {self.model}\n", *(f"module {entry}\n" for entry in self.entries)])

    @classmethod
    def parse(cls, text: str) -> PipelinePlan:
        """The inverse of ``str``. Raises ``PlanFormatError`` with the line number for any other text."""
        model, entries = "", []
        for number, line in enumerate(text.splitlines(), start=1):
            word, _, rest = line.strip().partition(" ")
            try:
                if word == "pipeline":
                    model = rest
                elif word == "module":
                    entries.append(_parsed(rest))
                elif word:
                    raise PlanFormatError(f"unknown word {shown(word)}; known: pipeline, module")
            except PlanFormatError as error:
                raise PlanFormatError(f"line {number}: {error}") from None
        if not model:
            raise PlanFormatError("a pipeline plan begins with a line `pipeline MODEL`")
        return cls(model, tuple(entries))

    def to_json(self) -> str:
        """JSON that fits ``PIPELINE_SCHEMA``."""
        modules = [{"module": e.module, "inputs": list(e.inputs), "outputs": list(e.outputs)} for e in self.entries]
        value = {"version": 1, "kind": "pipeline", "model": self.model, "modules": modules}
        return json.dumps(value, indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str) -> PipelinePlan:
        """The inverse of ``to_json``. Raises ``PlanFormatError`` with the path of the fault."""
        value = from_json(text, PIPELINE_SCHEMA)
        entries = [_entry(item["module"], item["inputs"], item["outputs"]) for item in value["modules"]]
        return cls(value["model"], tuple(entries))

    def to_library(self) -> dict[str, tuple[list[str], list[str]]]:
        """The value of transformers' ``base_model_pp_plan``."""
        return {entry.module: (list(entry.inputs), list(entry.outputs)) for entry in self.entries}

    @classmethod
    def from_library(cls, model: str, plan: Mapping[str, Sequence[Sequence[str]]]) -> PipelinePlan:
        """From a ``base_model_pp_plan``. Raises ``PlanFormatError`` for a value of another form."""
        entries = []
        for module, sides in plan.items():
            if isinstance(sides, str) or len(sides) != 2:
                raise PlanFormatError(f"{module}: (input names, output names) expected, not {shown(sides)}")
            entries.append(_entry(module, *sides))
        return cls(model, tuple(entries))


def library_text(plan: PipelinePlan) -> str:
    """``base_model_pp_plan`` as Python text, with a line for each module."""
    lines = [f'    "{name}": ({_listed(i)}, {_listed(o)}),\n' for name, (i, o) in plan.to_library().items()]
    return "".join(["{\n", *lines, "}\n"])


def _listed(names: list[str]) -> str:
    return "[" + ", ".join(f'"{name}"' for name in names) + "]"


def _parsed(text: str) -> Entry:
    words = text.split()
    if len(words) != 4 or words[2] != "->":
        raise PlanFormatError(f"`module PATH inputs -> outputs` expected, not {shown(text)}")
    sides = [() if side == "-" else tuple(side.split(",")) for side in (words[1], words[3])]
    return _entry("" if words[0] == _WHOLE else words[0], *sides)


def _entry(module: Any, inputs: Any, outputs: Any) -> Entry:
    if not isinstance(module, str) or (module and not _MODULE.fullmatch(module)):
        raise PlanFormatError(f"a module path expected, not {shown(module)}")
    for names in (inputs, outputs):
        if not isinstance(names, (list, tuple)) or not all(isinstance(n, str) and _NAME.fullmatch(n) for n in names):
            raise PlanFormatError(f"{module}: a list of names expected, not {shown(names)}")
    return Entry(module, tuple(inputs), tuple(outputs))


_NAMES = {"type": "array", "items": {"type": "string", "pattern": "^[A-Za-z_]\\w*$"}}
_MODULE_SCHEMA = record_schema("module inputs outputs", module={"type": "string"}, inputs=_NAMES, outputs=_NAMES)
PIPELINE_SCHEMA: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "pipeline plan",
    **record_schema(
        "version kind model modules",
        version={"const": 1},
        kind={"const": "pipeline"},
        model={"minLength": 1, **LINE},
        modules={"type": "array", "items": _MODULE_SCHEMA},
    ),
}
