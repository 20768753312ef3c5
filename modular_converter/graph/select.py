"""The modular files of a graph, and the models that arguments name."""

from __future__ import annotations

import glob
import os
from collections import Counter
from collections.abc import Sequence

from modular_converter.files.arguments import ALL, discover
from modular_converter.findings import ConversionError, Finding
from modular_converter.graph.build import model_name
from modular_converter.graph.records import Graph
from modular_converter.rules import nothing_to_convert
from modular_converter.settings.parent_folders import models_folder_of


def modular_files(arguments: Sequence[str], models: str | None) -> tuple[str, tuple[str, ...]]:
    """The folder of models, and every modular file below it.

    Without `models`, the folder follows from the first path among the arguments.
    Raises `ConversionError` when there is neither.
    """
    if models is None:
        paths = [path for argument in arguments if _is_path(argument) for path in discover([argument], None).paths]
        if paths:
            root = models_folder_of(paths[0])
            below = glob.glob(os.path.join(glob.escape(root), "*", "modular_*.py"))
            return root, tuple(sorted({*paths, *below}))
    found = discover([ALL], models)
    if found.findings or models is None:
        raise ConversionError(*found.findings)
    return models, found.paths


def chosen_models(arguments: Sequence[str], graph: Graph, root: str) -> tuple[list[str], list[Finding]]:
    """The models that the arguments name, and a finding for each argument that names none.

    An argument is the name of a model, which may be written by hand, or any argument of `modular-convert`. Where models
    are named with the folders above theirs (`nets/emu`), the last part is enough if no two have it.
    """
    lasts = Counter(name.rpartition("/")[2] for name in graph.models)
    short = {last: name for name in graph.models if lasts[last := name.rpartition("/")[2]] == 1}
    chosen: list[str] = []
    findings: list[Finding] = []
    for argument in arguments:
        written = (argument, argument.replace("-", "_"))
        names = [short.get(name, name) for name in written if name in graph.models or name in short][:1]
        if not names and _is_path(argument):
            found = discover([argument], root)
            findings += found.findings
            names = [name for path in found.paths if (name := model_name(os.path.dirname(path), root)) in graph.models]
            if names or found.findings:
                chosen += names
                continue
        if not names:
            reason = "no such model in the graph"
            findings.append(nothing_to_convert.diagnose(argument, reason=reason, candidates=graph.models))
        chosen += names
    return chosen, findings


def _is_path(argument: str) -> bool:
    return os.sep in argument or "/" in argument or argument.endswith(".py") or glob.has_magic(argument)


__all__ = ["chosen_models", "modular_files"]
