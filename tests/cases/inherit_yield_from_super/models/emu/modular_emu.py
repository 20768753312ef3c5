from ..llama.modeling_llama import LlamaMLP


class EmuMLP(LlamaMLP):
    def parts(self, number):
        yield "first"
        yield from super().parts(number)
        yield "last"
