from ...shared import counted, loud
from ..llama.modeling_llama import (
    LlamaCounted,
    LlamaDoubled,
    LlamaEntered,
    LlamaHandedOn,
    LlamaLimited,
    LlamaLoud,
    LlamaNoted,
    LlamaOtherNoted,
    LlamaReplaced,
    LlamaSized,
    LlamaTimes,
    LlamaTripled,
)


class EmuLoud(LlamaLoud):
    def forward(self):
        return super().forward() + "?"


@loud
class EmuOtherLoud(LlamaLoud):
    width = 2


class EmuCounted(LlamaCounted):
    width = 2


class EmuLimited(LlamaLimited):
    limit = 4


@counted
class EmuOtherLimited(LlamaLimited):
    width = 2


class EmuSized(LlamaSized):
    size = 2


class EmuReplaced(LlamaReplaced):
    def forward(self):
        return "emu"


class EmuNoted(LlamaNoted):
    def __init__(self):
        self.size = 2


class EmuOtherNoted(LlamaOtherNoted):
    def __init__(self):
        super().__init__()
        self.width = 2


class EmuRight(LlamaLimited):
    width = 2


class EmuTimes(LlamaTimes):
    size = 2


class EmuDoubled(LlamaDoubled):
    size = 2


class EmuTripled(LlamaTripled):
    size = 2


class EmuEntered(LlamaEntered):
    size = 2


class EmuHandedOn(LlamaHandedOn):
    kind = "emu"


class EmuOtherHandedOn(LlamaHandedOn):
    """Emu."""

    size = 2
