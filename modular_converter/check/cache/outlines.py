"""The outlines of modular files that earlier runs have read, kept in the folder of the cache."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping

from modular_converter.check.cache import store
from modular_converter.check.cache.key import tool_stamp
from modular_converter.graph.records import ClassHeader, Outline
from modular_converter.model.module import ImportedName


def load_outlines(cache_folder: str, models: str) -> dict[str, Outline]:
    """The outlines of the files below a folder of models, by the key of their text; `{}` where none can be read."""
    with contextlib.suppress(OSError, ValueError, TypeError, AttributeError):
        found = json.loads(store.read_entry(cache_folder, _name(models)) or b"{}")
        return {key: _unpacked(*values) for key, values in found.items()}
    return {}


def store_outlines(cache_folder: str, models: str, outlines: Mapping[str, Outline]) -> None:
    """Keep outlines for the next run. A folder that cannot be written to is no error."""
    with contextlib.suppress(OSError):
        values = {key: _packed(one) for key, one in outlines.items()}
        store.write_entry(cache_folder, _name(models), json.dumps(values).encode())
        store.bound(cache_folder)


def _packed(outline: Outline) -> tuple[object, object]:
    return [(line, (one.module, one.name, one.asname)) for line, one in outline.imports], outline.classes


def _unpacked(imports: list[tuple[int, list[str]]], classes: list[tuple[str, int, list[str]]]) -> Outline:
    return Outline(
        tuple((line, ImportedName(*name)) for line, name in imports),
        tuple(ClassHeader(name, line, tuple(bases)) for name, line, bases in classes),
    )


def _name(models: str) -> str:
    return store.digest(f"outlines\0{tool_stamp()!r}\0{models}".encode("utf-8", "surrogatepass"))
