"""Names of models: cased and lowercase forms, as their classes write them, else by the package's own table."""

from __future__ import annotations

import ast
import functools
import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from modular_converter.model.nodes import parse


_WORD = re.compile(r"[A-Z][^A-Z]*")
"""A piece of a cased name that no table knows: a capital and what follows it."""


@dataclass(frozen=True, eq=False)
class ModelNames:
    """The models of a package by type, both ways: as their own classes write them, else by the package's table, else by
    a cut at each capital.
    """

    by_type: Mapping[str, str] = field(default_factory=dict)
    """Model type (`big_bird`, `blip-2`) -> the model's cased name (`BigBird`, `Blip2`)."""
    written: Mapping[str, str] = field(default_factory=dict)
    """Model -> its cased name in the names of its classes, for models whose files have been read."""

    def cased(self, model: str) -> str:
        """`big_bird` -> `BigBird`. What begins with a model of a written name begins with it: `vlm_text` -> `VLMText`."""
        found = self.written.get(model) or self.by_type.get(model) or self.by_type.get(model.replace("_", "-"))
        if found is not None:
            return found
        begin = max((one for one in self.written if f"{model}_".startswith(f"{one}_")), key=len, default="")
        return self.written.get(begin, "") + "".join(part.title() for part in model[len(begin) :].split("_"))

    @cached_property
    def _by_name(self) -> Mapping[str, str]:
        """Cased name -> the last model type that has it."""
        return {name: model for model, name in (*self.by_type.items(), *self.written.items())}

    def lowercase(self, cased: str) -> str:
        """`BigBird` -> `big_bird`. What begins with a written name begins with that model: `VLMText` -> `vlm_text`."""
        model = self._by_name.get(cased)
        if model is not None:
            return model.replace("-", "_")
        begin = max(
            (one for one in self.written.values() if re.match(f"{re.escape(one)}[A-Z]", cased)), key=len, default=""
        )
        words = [word.lower() for word in _WORD.findall(cased[len(begin) :])]
        return "_".join([self._by_name[begin], *words] if begin else words) or cased.lower()

    def with_written(self, model: str, classes: Iterable[str]) -> ModelNames:
        """The same names with that of a model as its own classes write it: `VLM` for `vlm`, from `class VLMConfig`.

        A table that lists the model or the name is right where renaming, which ignores case, finds the classes by it:
        `MLCDVision` for `mlcd`, `xclip` for `XCLIP`, but not `nemo_speechlm` for `Nemotron3_5Transcribe`.
        """
        cased, listed = written_name(model, classes), self.cased(model)
        if cased is None or cased == listed:
            return self
        is_listed = bool({model, model.replace("_", "-")} & self.by_type.keys()) or cased in self._by_name
        if is_listed and cased.lower() in (model, listed.lower()):
            return self
        found = self._with_written.get((model, cased))
        if found is None:
            found = self._with_written[model, cased] = replace(self, written={**self.written, model: cased})
        return found

    @cached_property
    def _with_written(self) -> dict[tuple[str, str], ModelNames]:
        return {}


def common_suffix(name: str, other: str) -> str:
    """The longest common suffix of two names."""
    length = 0
    while length < min(len(name), len(other)) and name[-length - 1] == other[-length - 1]:
        length += 1
    return name[len(name) - length :]


def written_name(model: str, classes: Iterable[str]) -> str | None:
    """The name of a model as most of some class names begin: `Glm4v` for `glm4v`; None if none begins with it."""
    found = Counter(begin for name in classes if (begin := _written_at_beginning(model, name)))
    return found.most_common(1)[0][0] if found else None


def in_other_case(name: str, model: str, classes: Iterable[str]) -> tuple[str, ...]:
    """The classes whose names differ from `name` in the case of the model's name, with which they begin, and in nothing
    else: `PaliGemmaModel` for `PaligemmaModel`.
    """
    begin = _written_at_beginning(model, name)
    pattern = re.compile(f"(?i:{re.escape(begin)}){re.escape(name[len(begin) :])}")
    return tuple(one for one in classes if one != name and pattern.fullmatch(one))


def _written_at_beginning(model: str, name: str) -> str:
    """The name of a model as the name of a class begins with it; "" where it does not."""
    match = re.match(f"(?i:{'_?'.join(map(re.escape, model.split('_')))})(?![a-z])", name)
    return match.group() if match else ""


@functools.lru_cache(maxsize=8)
def read_model_names(sources: tuple[tuple[str, str], ...], variable: str, suffix: str) -> ModelNames:
    """The names in the literals that `variable` is built from, in the order of `sources`. Nothing is executed.

    Raises `SyntaxError`, with the file's name, for a text that cannot be read.

    Args:
        sources: path and text of each file.
        variable: a table of model types and configuration classes.
        suffix: the end of the name of a configuration class, behind the model's name.
    """
    table = _read_table(sources, variable)
    if not any(config.endswith(suffix) for config in table.values()):  # the table of another package
        suffix = os.path.commonprefix([config[::-1] for config in table.values()])[::-1]
    return ModelNames({model: config.replace(suffix, "") for model, config in table.items()})


def _read_table(sources: tuple[tuple[str, str], ...], variable: str) -> dict[str, str]:
    table: dict[str, str] = {}
    for path, source in sources:
        if variable not in source:
            continue
        try:
            for node in parse(source, path).body:
                table = _apply(node, variable, table)
        except (ValueError, RecursionError, MemoryError) as error:
            reason = str(error) or type(error).__name__
            raise SyntaxError(reason, (path, 1, 1, None)) from None
    return table


def _apply(node: ast.stmt, variable: str, table: dict[str, str]) -> dict[str, str]:
    if isinstance(node, ast.Assign) and [ast.unparse(target) for target in node.targets] == [variable]:
        return _literal_pairs(node.value, variable, table)
    if (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Call)
        and isinstance(node.value.func, ast.Attribute)
        and node.value.func.attr == "update"
        and isinstance(node.value.func.value, ast.Name)
        and node.value.func.value.id == variable
    ):
        return {**table, **(_literal_pairs(node.value.args[0], variable, table) if node.value.args else {})}
    return table


def _literal_pairs(node: ast.expr, variable: str, table: dict[str, str]) -> dict[str, str]:
    """The pairs of strings in `{…}`, `[(k, v), …]`, `dict(…)`, `OrderedDict(…, **other)` or the variable itself."""
    pairs: dict[str, str] = {}
    if isinstance(node, ast.Name):
        return dict(table) if node.id == variable else {}
    if isinstance(node, ast.Call):
        for argument in [*node.args, *(keyword.value for keyword in node.keywords if keyword.arg is None)]:
            pairs.update(_literal_pairs(argument, variable, table))
    elif isinstance(node, ast.Dict):
        for key, value in zip(node.keys, node.values):
            if key is None:
                pairs.update(_literal_pairs(value, variable, table))
            else:
                _add_pair(pairs, key, value)
    elif isinstance(node, (ast.List, ast.Tuple)):
        for item in node.elts:
            if isinstance(item, ast.Tuple) and len(item.elts) == 2:
                _add_pair(pairs, item.elts[0], item.elts[1])
    return pairs


def _add_pair(pairs: dict[str, str], key: ast.expr, value: ast.expr) -> None:
    texts = [node.value for node in (key, value) if isinstance(node, ast.Constant)]
    if len(texts) == 2 and isinstance(texts[0], str) and isinstance(texts[1], str):
        pairs[texts[0]] = texts[1]
