from __future__ import annotations


class LlamaTree:
    def copy(self) -> LlamaTree:
        return type(self)()

    def grow(self, other: LlamaTree | None = None) -> list[LlamaTree]:
        return [self, other]
