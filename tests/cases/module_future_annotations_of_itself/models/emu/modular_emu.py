from __future__ import annotations

from ..llama.modeling_llama import LlamaTree


class EmuTree(LlamaTree):
    def copy(self) -> "EmuTree":
        return super().copy()

    def grow(self, other: "EmuTree | None" = None) -> "list[EmuTree]":
        return super().grow(other)

    def meet(self, other: "EmuTree"):
        return other


class EmuOldTree(LlamaTree):
    pass


class EmuNewTree(EmuTree):
    def meet(self, other: EmuNewTree) -> EmuLaterTree:
        return other


class EmuLaterTree(EmuTree):
    pass
