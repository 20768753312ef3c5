"""The outlines of modular files that earlier runs have read, kept in the folder of the cache."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

from modular_converter.check.cache import store
from modular_converter.check.cache.key import tool_stamp
from modular_converter.graph.records import ClassHeader, Outline
from modular_converter.model.module import ImportedName


def load_outlines(cache_folder: str, models: str) -> dict[str, Outline]:
    """The outlines of the files below a folder of models, by the key of their text; `{}` where none can be read."""
    with contextlib.suppress(ValueError, TypeError):
        return {key: _unpacked(*one) for key, one in store.read_values(cache_folder, _name(models)).items()}
    return {}


def store_outlines(cache_folder: str, models: str, outlines: Mapping[str, Outline]) -> None:
    """Keep outlines for the next run."""
    store.keep_values(cache_folder, _name(models), {key: _packed(one) for key, one in outlines.items()})


def _packed(outline: Outline) -> tuple[object, object]:
    return [(line, (one.module, one.name, one.asname)) for line, one in outline.imports], outline.classes


def _unpacked(imports: list[tuple[int, list[str]]], classes: list[tuple[str, int, list[str]]]) -> Outline:
    return Outline(
        tuple((line, ImportedName(*name)) for line, name in imports),
        tuple(ClassHeader(name, line, tuple(bases)) for name, line, bases in classes),
    )


def _name(models: str) -> str:
    return store.digest(f"outlines\0{tool_stamp()!r}\0{models}".encode("utf-8", "surrogatepass"))
