"""The verdict on a random program: does the generated file behave as Python's own inheritance, or is a finding given?"""

from __future__ import annotations

import ast
import enum
import re
import types
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cache

from modular_converter.convert.batch import Run
from modular_converter.findings import Conversion, Finding
from modular_converter.settings.load import Settings, profile_settings
from tests.oracle.behaviour import MISSING, carry_out_removals, executed, neutral, observe
from tests.oracle.documented import EVERYTHING, documented
from tests.oracle.programs import Program


ROOT = "/random/program"
MODULAR = "models.emu.modular_emu"
GENERATED = "models.emu.modeling_emu"
SAYS_NOTHING = frozenset(
    ("missing-from-all", "unknown-in-all", "deep-inheritance", "plan-names-missing-layer", "plan-lacks-new-layer")
)
"""Rules that warn of something else than a changed meaning."""


class Outcome(enum.Enum):
    """What became of a program."""

    INVALID = "the program itself cannot be executed"
    SAME = "same behaviour"
    REFUSED = "refused with an error"
    WARNED = "other behaviour, and a finding names it"
    DOCUMENTED = "other behaviour, as the guide describes it"
    SILENT = "other behaviour, and nothing is said"
    CRASHED = "internal error"


@dataclass(frozen=True)
class Difference:
    """One question that two classes answer differently."""

    class_name: str
    question: str
    expected: object
    got: object

    def __str__(self) -> str:
        asked = self.question.format(self.class_name) if "{}" in self.question else f"{self.class_name}{self.question}"
        return f"{asked}: Python gives {self.expected!r}, the generated file {self.got!r}"


@dataclass(frozen=True)
class Verdict:
    """What became of a program, with the evidence."""

    outcome: Outcome
    differences: tuple[Difference, ...] = ()
    """Those that no finding names, when there are any."""
    findings: tuple[Finding, ...] = ()
    generated: str = ""

    @property
    def kind(self) -> str:
        """A short description of what is different, equal for differences of one sort."""
        if not self.differences:
            return self.outcome.name
        first = self.differences[0]
        question = re.sub(r"\(.*\)", "()", first.question)
        return f"{question} {_shape(first.expected)} -> {_shape(first.got)}"


def _shape(value: object) -> str:
    if isinstance(value, tuple) and value and value[0] in ("raises", "import"):
        return str(value[1])
    if isinstance(value, tuple) and len(value) == 2 and isinstance(value[1], tuple):
        return _shape(value[0])
    return "value" if value != MISSING else "missing"


@cache
def settings(formatter: str) -> Settings:
    """The profile's settings with a formatter. Without one there are no starts of a process."""
    return replace(profile_settings(), formatter=formatter)


def convert(program: Program, formatter: str = "none") -> Conversion:
    """Convert the program's modular file in memory."""
    overlay = {f"{ROOT}/{name.replace('.', '/')}.py": text for name, text in program.modules.items()}
    path = f"{ROOT}/{MODULAR.replace('.', '/')}.py"
    return Run(settings(formatter), overlay, workers=1).convert([path])[0]


def judge(program: Program, lints: bool = True) -> Verdict:
    """Execute a program and what it is converted to, and compare each class of the modular file.

    Args:
        lints: whether a difference is converted again with the formatter, whose linter finds undefined names.
    """
    with executed("original", program.modules) as original:
        modules = {name: module for name, module in original.items() if isinstance(module, types.ModuleType)}
        if len(modules) < len(original):
            return Verdict(Outcome.INVALID)
        conversion = convert(program)
        verdict = _refusal(conversion)
        if verdict is not None:
            return verdict
        text = next((text for path, text in conversion.files.items() if path.endswith("modeling_emu.py")), "")
        _replace_in_neighbours(modules, _defined(text))
        generated_modules = {name: program.modules[name] for name in ("shared", "other")} | {GENERATED: text}
        with executed("generated", generated_modules) as generated:
            differences = tuple(_differences(modules[MODULAR], generated[GENERATED]))
    if not differences:
        return Verdict(Outcome.SAME, findings=conversion.findings, generated=text)
    return _weigh(program, differences, convert(program, "ruff") if lints else conversion, text)


def _refusal(conversion: Conversion) -> Verdict | None:
    if not conversion.failed:
        return None
    crashed = any(finding.rule.name == "internal-error" for finding in conversion.findings)
    return Verdict(Outcome.CRASHED if crashed else Outcome.REFUSED, findings=conversion.findings)


def _weigh(program: Program, differences: tuple[Difference, ...], checked: Conversion, text: str) -> Verdict:
    verdict = _refusal(checked)
    if verdict is not None:
        return replace(verdict, differences=differences, generated=text)
    named = _named(program, checked, text)
    silent = tuple(one for one in differences if not _is_named(one, named))
    if not silent:
        return Verdict(Outcome.WARNED, differences, checked.findings, text)
    described = _described(program, text)
    undescribed = tuple(one for one in silent if not described(one))
    outcome = Outcome.SILENT if undescribed else Outcome.DOCUMENTED
    return Verdict(outcome, undescribed or silent, checked.findings, text)


def _described(program: Program, text: str) -> Callable[[Difference], bool]:
    """Tells the differences that the guide describes; classes that use a class with one are different, too."""
    places = documented(program.emu, program.llama, program.bert)
    users = {name: _with_users({name}, text) - {name} for name, _ in places}

    def is_described(one: Difference) -> bool:
        method = one.question.lstrip(".").partition("(")[0]
        return any(
            (name == one.class_name and about in (method, EVERYTHING)) or one.class_name in users[name]
            for name, about in places
        )

    return is_described


def _replace_in_neighbours(modules: Mapping[str, types.ModuleType], generated: Set[str]) -> None:
    """Let inherited code use what the modular file defines in place of a neighbour's: a feature of modular files.

    Where a generated file has two definitions that differ in their prefix alone, each is of another neighbour.
    """
    own = vars(modules[MODULAR])
    for dotted, module in modules.items():
        if ".modeling_" not in dotted:
            continue
        for name in [name for name, value in vars(module).items() if _is_of(value, module)]:
            alike = {other for other in generated if neutral(other) == neutral(name)}
            for replaced in alike & own.keys():
                value = own[replaced]
                if _is_of(value, modules[MODULAR]) and (len(alike) == 1 or _builds_on(value, module)):
                    setattr(module, name, value)


def _builds_on(value: object, module: types.ModuleType) -> bool:
    return isinstance(value, type) and any(_is_of(base, module) for base in value.__mro__)


def _is_of(value: object, module: types.ModuleType) -> bool:
    return isinstance(value, (type, types.FunctionType)) and value.__module__ == module.__name__


def _differences(original: types.ModuleType, generated: types.ModuleType | Exception) -> Iterator[Difference]:
    classes = {name: cls for name, cls in vars(original).items() if isinstance(cls, type) and _is_of(cls, original)}
    for cls in classes.values():
        carry_out_removals(cls)
    for name, cls in classes.items():
        if isinstance(generated, Exception):
            yield Difference(name, " (import)", "a class", ("import", type(generated).__name__))
            return
        found = vars(generated).get(name)
        if not isinstance(found, type):
            yield Difference(name, " (class)", "a class", MISSING)
            continue
        expected, got = observe(cls, cls), observe(found, cls)
        for question, answer in expected.items():
            if got[question] != answer and not _is_stub(cls, question):
                yield Difference(name, question, answer, got[question])


def _is_stub(cls: type, question: str) -> bool:
    """Whether a question is about a method that only raises, which asks for the removal of the parent's."""
    method = getattr(cls, question.lstrip(".").partition("(")[0], None)
    code = getattr(method, "__code__", None)
    return code is not None and "gone" in code.co_consts


def _named(program: Program, conversion: Conversion, text: str) -> set[str]:
    """The names of definitions that findings are about, by place or in the message."""
    named: set[str] = set()
    defined = _defined(program.emu) | _defined(text)
    for finding in conversion.findings:
        if finding.rule.name in SAYS_NOTHING:
            continue
        named.update(defined.intersection(re.findall(r"\w+", finding.message)))
        is_modular = finding.location.path.endswith("modular_emu.py")
        for node in ast.parse(program.emu if is_modular else _generated(conversion, text)).body:
            if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and node.end_lineno is not None:
                above = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
                if above <= finding.location.line <= node.end_lineno:
                    named.add(node.name)
    return _with_users(named, text)


def _defined(text: str) -> set[str]:
    """The functions and classes of a module."""
    try:
        nodes = ast.parse(text).body
    except SyntaxError:
        return set()
    return {node.name for node in nodes if isinstance(node, (ast.ClassDef, ast.FunctionDef))}


def _generated(conversion: Conversion, text: str) -> str:
    return next(iter(conversion.files.values()), text)


def _with_users(named: set[str], text: str) -> set[str]:
    """The names, and the definitions of the generated file that use them."""
    try:
        nodes = ast.parse(text).body
    except SyntaxError:
        return named
    uses = {node.name: set(_words(node)) for node in nodes if isinstance(node, (ast.ClassDef, ast.FunctionDef))}
    while more := {name for name, words in uses.items() if name not in named and not words.isdisjoint(named)}:
        named = named | more
    return named


def _words(node: ast.AST) -> Sequence[str]:
    return [one.id for one in ast.walk(node) if isinstance(one, ast.Name)]


def _is_named(difference: Difference, named: set[str]) -> bool:
    return difference.class_name in named or (difference.question == " (import)" and bool(named))
