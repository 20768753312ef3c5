"""Whether a class is imported from another model: from a file of it, its package, or its modular file."""

from __future__ import annotations

import os
import re

from modular_converter.convert.inherit.resolve import neighbour_module
from modular_converter.convert.source.library import Library
from modular_converter.settings.kinds import module_name


_IN_MODELS = re.compile(r"(?:\.\.|\.*(?:[^\W\d]\w*\.)*models\.)([^\W\d]\w*)(\.modular_[^\W\d]\w*)?")


def is_of_other_model(dotted: str, path: str, library: Library) -> bool:
    """Whether the module of an import in the file `path` belongs to another model."""
    settings = library.settings
    if neighbour_module(dotted, settings) is not None:
        return True
    match = _IN_MODELS.fullmatch(dotted)
    if match is None or match[1] in settings.no_models:
        return False
    here = os.path.dirname(path)
    found = library.resolver.path(dotted, here)
    if found is None or match[2]:
        return found is not None and library.exists(found)
    folder = found.removesuffix(".py")
    names = [f"modular_{match[1]}", *(module_name(kind, match[1]) for kind in settings.file_kinds)]
    return folder != here and any(library.exists(os.path.join(folder, f"{name}.py")) for name in names)
