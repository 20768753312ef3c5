from ...shared import Deep, Field, Named
from ..llama.modeling_llama import LlamaDepths, LlamaFields, LlamaLabels, LlamaNames, LlamaSizes


class EmuFields(LlamaFields):
    first = Field()


class EmuMoreFields(LlamaFields):
    second = Field()


class EmuSizes(LlamaSizes):
    size = 2


class EmuLabels(LlamaLabels):
    size = 2


class EmuDepths(LlamaDepths):
    second = Deep()


class EmuNames(LlamaNames):
    first = Named()
    second = Named()
