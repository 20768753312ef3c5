from ...shared import Field, register
from ..llama.modeling_llama import LlamaEntered, LlamaFields, LlamaListed, LlamaRooted


class EmuEntered(LlamaEntered):
    depth = 1


@register("emu")
class EmuOtherEntered(LlamaEntered):
    depth = 1


class EmuFields(LlamaFields):
    second = Field()


class EmuListed(LlamaListed):
    depth = 1


class EmuRooted(LlamaRooted):
    depth = 1


__all__ = ["EmuEntered", "EmuFields", "EmuListed", "EmuOtherEntered", "EmuRooted"]
