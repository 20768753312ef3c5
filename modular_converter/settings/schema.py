"""The JSON schema of `[tool.modular-converter]`, for editors (SchemaStore) and for `validate-pyproject`.

The readers of the settings judge more than a schema can; what the schema refuses, they refuse.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from modular_converter.findings import Severity
from modular_converter.settings import keys
from modular_converter.settings.values import FORMATTERS, LAYOUTS, SIBLING_IMPORTS


PATH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "schema.json")
_TEXT = {"type": "string"}
_TEXTS = {"type": "array", "items": _TEXT}
_NAMES = {"type": "string", "minLength": 1}
_TABLE = {"type": "object", "additionalProperties": _NAMES}
_TYPES: Mapping[str, Mapping[str, Any]] = {
    "max-file-bytes": {"type": "integer", "minimum": 1, "maximum": keys.MOST},
    "workers": {"type": "integer", "minimum": 0, "maximum": keys.MOST},
    "strict": {"type": "boolean"},
    "sibling-imports": {"enum": list(SIBLING_IMPORTS)},
    "formatter": {"enum": list(FORMATTERS)},
    "replaced-dependency": {"enum": [one.value for one in Severity]},
    "kinds": _TABLE,
    "copied-kinds": _TABLE,
    "implied-bases": _TABLE,
    "per-file-ignores": {"type": "object", "additionalProperties": _TEXTS},
    "default-kind": _NAMES,
    "modular-kind": _NAMES,
    "layout": {"enum": list(LAYOUTS)},
    **dict.fromkeys(keys.LISTS, _TEXTS),
}
"""The form of each value; those of other keys are strings."""


def schema_with(descriptions: Mapping[str, str]) -> dict[str, Any]:
    """The schema of the table, with the words for each key. Raises `KeyError` for a key without words."""
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "$id": "https://json.schemastore.org/partial-modular-converter.json",
        "title": "modular-converter",
        "description": "How modular model files are converted and checked",
        "type": "object",
        "additionalProperties": False,
        "properties": {
            key: {"description": descriptions[key], **_TYPES.get(key, _TEXT)} for key in sorted(keys.READERS)
        },
    }


def tool_schema(tool_name: str = "modular-converter") -> dict[str, Any]:
    """The schema, as `validate-pyproject` asks its plugins for it."""
    with open(PATH, encoding="utf-8") as file:
        found: dict[str, Any] = json.load(file)
    return found
