from ..llama.modeling_llama import (
    FIELDS,
    REGISTRY,
    LlamaEntered,
    LlamaField,
    LlamaFields,
    LlamaOwnClass,
    register,
)


@register("emu")
class EmuEntered(LlamaEntered):
    def names(self):
        return sorted(REGISTRY)


class EmuFields(LlamaFields):
    second = LlamaField()

    def names(self):
        return FIELDS[EmuFields]


# The class is written below its parent.
class EmuOwnClass(LlamaOwnClass):
    def is_own(self):
        parent = super()
        return parent.is_own() or LlamaOwnClass in type(self).__mro__

    def scale(self, other):
        return self._LlamaOwnClass__scale if isinstance(other, LlamaOwnClass) else None


__all__ = ["EmuEntered", "EmuFields", "EmuOwnClass"]
