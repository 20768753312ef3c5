from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass
class LlamaOutput:
    size: int = 1
    label: str = ""

    def labels(self):
        return [one.name for one in fields(self) if one.type == "str"]
