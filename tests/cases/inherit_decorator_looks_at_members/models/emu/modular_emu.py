from ..llama.modeling_llama import LlamaMLP, LlamaOutput, named, with_fields


@with_fields
class EmuOutput(LlamaOutput):
    states: int = 2


@named("emu")
class EmuMLP(LlamaMLP):
    width = 3
