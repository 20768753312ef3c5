"""The ``Plan`` value: rules by layer pattern, integers that shrink, and parts that stay whole, with the reason."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

from modular_converter.parallel.errors import PlanFormatError
from modular_converter.parallel.plans.parts import LARGEST, Part, checked_parts
from modular_converter.parallel.plans.text_checks import (
    LINE,
    checked_line,
    checked_path,
    from_json,
    record_schema,
    shortened,
    shown,
)
from modular_converter.parallel.styles import STYLES
from modular_converter.parallel.styles.layout import WeightLayout


DIMENSIONS = 64  # the most dimensions of torch's tensors
_DIMENSION = "count from the first, which is 0"
_ATTRIBUTE = re.compile(r"[^:\s]*:[^:\s]+")


@dataclass(frozen=True, order=True)
class PlanRule:
    """One line of a plan.

    Attributes:
        pattern: a module or parameter path with ``*`` for layer numbers.
        style: the name of a style.
        dim: the sharded dimension of the weight, unless it is the style's usual dimension for ``nn.Linear``.
        parts: lengths of the packed blocks in order, in proportion or as expressions in the model's attributes (see
            ``parts``); a single part is the number of equal blocks; ``()`` for one block.
        units: the number of equal units in each block that no cut divides, such as heads, or an expression for it; None
            for single entries.
        members: the number of members of a unit, if several ranks divide them; 1 if each has a copy; see ``Units``.
    """

    pattern: str
    style: str
    dim: int | None = None
    parts: tuple[Part, ...] = ()
    units: Part | None = None
    members: int = 0

    def __post_init__(self) -> None:
        checked_path(self.pattern, "rule")
        checked_style(self.style, self.pattern)
        if self.dim is not None and not 0 <= self.dim < DIMENSIONS:
            raise PlanFormatError(f"{self.pattern}: dim={shown(self.dim)} is not a dimension: {_DIMENSION}")
        object.__setattr__(self, "parts", checked_parts(self.parts, self.pattern))
        if self.units is not None:
            object.__setattr__(self, "units", checked_parts([self.units], self.pattern)[0])
        if self.members and self.units is None or not 0 <= self.members < LARGEST:
            raise PlanFormatError(f"{self.pattern}: members={shown(self.members)} is of a unit: give units= too")

    @property
    def layout(self) -> WeightLayout:
        """What the style says."""
        return STYLES[self.style].layout

    @property
    def is_plain(self) -> bool:
        """Whether the weight is cut along the usual dimension of its style, as one block, between any two numbers."""
        return self.dim is None and not self.parts and self.units is None

    @property
    def options(self) -> dict[str, Any]:
        """Name -> value of what is not the usual, as in JSON."""
        members, parts = self.members or None, list(self.parts) or None
        found = {"dim": self.dim, "parts": parts, "units": self.units, "members": members}
        return {name: value for name, value in found.items() if value is not None}

    def __str__(self) -> str:
        texts = {name: ":".join(map(str, one)) if name == "parts" else one for name, one in self.options.items()}
        return " ".join([self.pattern, self.style, *(f"{name}={text}" for name, text in texts.items())])

    @classmethod
    def parse(cls, text: str) -> PlanRule:
        """The inverse of ``str``. Raises ``PlanFormatError`` for an unknown style or option."""
        pattern, *rest = text.split() or [""]
        if not rest:
            raise PlanFormatError(f"a rule is `pattern style [dim=n] [parts=a:b] [units=n]`, not {shown(text)}")
        checked_path(pattern, "rule")
        options = {}
        for item in rest[1:]:
            name, equals, value = item.partition("=")
            if name not in ("dim", "parts", "units", "members") or not equals:
                raise PlanFormatError(
                    f"{pattern}: unknown option {shown(item)}; known are dim=n, parts=a:b, units=n and members=n"
                )
            options[name] = value
        dim = _dimension(options["dim"], pattern) if "dim" in options else None
        parts = tuple(options["parts"].split(":")) if "parts" in options else ()
        members = checked_parts([options["members"]], pattern)[0] if "members" in options else 0
        if not isinstance(members, int):
            raise PlanFormatError(f"{pattern}: members={shown(members)} is not a number")
        return cls(pattern, rest[0], dim, parts, options.get("units"), members)


def _dimension(text: str, pattern: str) -> int:
    if not text.isascii() or not text.isdecimal() or len(text) > len(str(DIMENSIONS)):
        raise PlanFormatError(f"{pattern}: dim={shortened(text)} is not a dimension: {_DIMENSION}")
    return int(text)


def checked_style(style: str, pattern: str) -> str:
    """The style, if it is known; else raises ``PlanFormatError`` with the known styles."""
    if style not in STYLES:
        raise PlanFormatError(f"{pattern}: unknown style {shown(style)}; known are {', '.join(sorted(STYLES))}")
    return style


@dataclass(frozen=True)
class Plan:
    """A tensor-parallel plan of a model.

    Attributes:
        model: its type or class path.
        rules: in order of the model's parameters.
        attributes: integers that shrink with the shard, as ``<module pattern>:<attribute>``.
        whole: (parameter pattern, reason why it stays whole).
    """

    model: str
    rules: tuple[PlanRule, ...] = ()
    attributes: tuple[str, ...] = ()
    whole: tuple[tuple[str, str], ...] = field(default=())

    def __post_init__(self) -> None:
        checked_line(self.model, "the model's name")
        for name in self.attributes:
            _checked_attribute(name)
        for pattern, reason in self.whole:
            checked_line(reason, f"whole {checked_path(pattern, 'whole')}")

    def __str__(self) -> str:
        lines = [f"plan {self.model}"]
        lines += [f"rule {rule}" for rule in self.rules]
        lines += [f"attribute {name}" for name in self.attributes]
        lines += [f"whole {pattern} {reason}" for pattern, reason in self.whole]
        return "\n".join(lines) + "\n"

    @classmethod
    def parse(cls, text: str) -> Plan:
        """The inverse of ``str``. Raises ``PlanFormatError`` with the line number for any other text."""
        model, rules, attributes, whole = "", [], [], []
        for number, line in enumerate(text.splitlines(), start=1):
            word, _, rest = line.strip().partition(" ")
            try:
                if word == "plan":
                    model = rest
                elif word == "rule":
                    rules.append(PlanRule.parse(rest))
                elif word == "attribute":
                    attributes.append(_checked_attribute(rest))
                elif word == "whole":
                    pattern, _, reason = rest.partition(" ")
                    whole.append((pattern, reason))
                elif word:
                    raise PlanFormatError(f"unknown word {shown(word)}; known: plan, rule, attribute, whole")
            except PlanFormatError as error:
                raise PlanFormatError(f"line {number}: {error}") from None
        if not model:
            raise PlanFormatError("a plan begins with a line `plan MODEL`")
        return cls(model, tuple(rules), tuple(attributes), tuple(whole))

    def to_json(self) -> str:
        """JSON that fits ``plan_schema``."""
        rules = [{"pattern": rule.pattern, "style": rule.style, **rule.options} for rule in self.rules]
        value = {"version": 1, "model": self.model, "rules": rules, "attributes": list(self.attributes)}
        value["whole"] = [{"pattern": pattern, "reason": reason} for pattern, reason in self.whole]
        return json.dumps(value, indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Plan:
        """The inverse of ``to_json``. Raises ``PlanFormatError`` with the path of the fault."""
        value = from_json(text, plan_schema())
        rules = []
        for entry in value["rules"]:
            dim = int(entry["dim"]) if "dim" in entry else None  # 0.0 is an integer to JSON Schema
            parts = tuple(entry.get("parts", ()))
            units, members = entry.get("units"), int(entry.get("members", 0))
            rules.append(PlanRule(entry["pattern"], entry["style"], dim, parts, units, members))
        attributes = tuple(value.get("attributes", ()))
        whole = tuple((item["pattern"], item["reason"]) for item in value.get("whole", ()))
        return cls(value["model"], tuple(rules), attributes, whole)


def is_expert_plan(plan: Plan) -> bool:
    """Whether a plan divides experts, not tensors, among the ranks."""
    return any(rule.layout.divides_experts for rule in plan.rules)


def _checked_attribute(text: Any) -> str:
    if not isinstance(text, str) or not _ATTRIBUTE.fullmatch(text):
        raise PlanFormatError(f"an attribute is `module pattern:name`, not {shown(text)}")
    return text


def plan_schema() -> dict[str, Any]:
    """The JSON schema of plans, with the known styles."""
    number = {"anyOf": [{"type": "integer", "minimum": 1}, {"type": "string"}]}
    rule = record_schema(
        "pattern style",
        pattern={"type": "string", "pattern": "^\\S+$"},
        style={"enum": sorted(STYLES)},
        dim={"type": "integer", "minimum": 0, "maximum": DIMENSIONS - 1},
        parts={"type": "array", "items": number},
        units=number,
        members={"type": "integer", "minimum": 1, "maximum": LARGEST - 1},
    )
    whole = record_schema("pattern reason", pattern={"type": "string", "pattern": "^\\S*$"}, reason=LINE)
    plan = record_schema(
        "version model rules",
        version={"const": 1},
        model={"minLength": 1, **LINE},
        rules={"type": "array", "items": rule},
        attributes={"type": "array", "items": {"type": "string", "pattern": "^[^:\\s]*:[^:\\s]+$"}},
        whole={"type": "array", "items": whole},
    )
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "tensor-parallel plan", **plan}
