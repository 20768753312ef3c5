from ..llama.modeling_llama import TABLE, LlamaMLP, helper


class EmuMLP(LlamaMLP):
    """Each of these uses a word of inherited code that is called otherwise in generated code."""

    def keyword(self):
        return helper(llama_x=5)

    def attribute(self):
        return self.part.llama_value

    def parameter(self):
        return self.apply(lambda llama_k: llama_k)

    def step(self, llama_step):
        return 2 * llama_step

    def key(self):
        return TABLE["llama_key"]

    def own(self, llama_own):
        return self.own(llama_own=llama_own), "llama_own"


__all__ = ["EmuMLP"]
