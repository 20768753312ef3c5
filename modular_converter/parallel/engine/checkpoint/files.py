"""The safetensors files of a folder: their headers, checked before anything is read."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open

from modular_converter.parallel.engine.checkpoint.recipes import Stored
from modular_converter.parallel.errors import ApplyError, one_line


ONE_FILE, INDEX = "model.safetensors", "model.safetensors.index.json"
_TYPES = {
    "BOOL": torch.bool,
    "U8": torch.uint8,
    "I8": torch.int8,
    "I16": torch.int16,
    "I32": torch.int32,
    "I64": torch.int64,
    "U16": torch.uint16,
    "U32": torch.uint32,
    "U64": torch.uint64,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F32": torch.float32,
    "F64": torch.float64,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
}


def stored_tensors(folder: Path, named: str | None = None, more: Iterable[str] = ()) -> dict[str, Stored]:
    """Key -> tensor of a checkpoint, from the headers of its files.

    Args:
        named: the file or index that the configuration names.
        more: other files of the checkpoint; they may be absent.

    Raises ``ApplyError`` if there are no safetensors files, or a file is damaged or lacks a key of the index; the message
    names file and key.
    """
    first = named or next((name for name in (ONE_FILE, INDEX) if (folder / name).is_file()), None)
    if first is None:
        raise ApplyError(_no_files(folder))
    mapped = _indexed(folder / first) if first.endswith(".json") else {}
    names = sorted(set(mapped.values())) or [first]
    found: dict[str, Stored] = {}
    for name in (*names, *(name for name in more if (folder / name).is_file())):
        if Path(name).name != name:
            raise ApplyError(f"{folder / first}: names {name!r}, which is not a file of this folder")
        found |= _header(folder / name)
    for key, name in mapped.items():
        if key not in found:
            raise ApplyError(f"{folder / name}: {key} is missing, which {folder / first} places there")
    return found


def _no_files(folder: Path) -> str:
    """The message for a folder without safetensors files, with the files found instead and the cure."""
    if any(folder.glob("*.bin")):
        return (
            f"{folder}: has .bin files, which hold pickled objects and are not read; load the model with from_pretrained "
            "and save it with save_pretrained, which writes safetensors"
        )
    others = sorted(path.name for path in folder.glob("*.safetensors"))
    more = f"; it has {', '.join(others[:3])}" if others else ""
    return f"{folder}: has neither {ONE_FILE} nor {INDEX}{more}"


def holds_adapter(folder: Path) -> str:
    """The message for the folder of an adapter; empty for any other folder."""
    if not (folder / "adapter_config.json").is_file():
        return ""
    return (
        f"{folder}: holds an adapter; load its model with from_pretrained, call merge_and_unload(), save it, and give "
        "that folder"
    )


def _indexed(path: Path) -> dict[str, str]:
    try:
        found: Any = json.loads(path.read_text(encoding="utf-8"))["weight_map"]
        return {str(key): str(name) for key, name in found.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ApplyError(f"{path}: is not an index of safetensors files: {one_line(error)}") from error


def _header(path: Path) -> dict[str, Stored]:
    """The tensors of one file. safetensors refuses a file whose length differs from its header."""
    found = {}
    key = "its header"
    try:
        with safe_open(str(path), framework="pt", device="cpu") as file:
            for key in file.keys():  # noqa: SIM118
                part = file.get_slice(key)
                kind = _TYPES.get(part.get_dtype())
                if kind is None:
                    raise ApplyError(f"{path}: {key} has the type {part.get_dtype()}, which is not supported")
                found[key] = Stored(tuple(part.get_shape()), kind, str(path), key)
    except ApplyError:
        raise
    except Exception as error:  # of safetensors, or of the system
        raise ApplyError(f"{path}: {key} cannot be read: {one_line(error)}") from error
    return found
