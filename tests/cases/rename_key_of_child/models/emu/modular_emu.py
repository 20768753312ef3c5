from ..llama.modeling_llama import LlamaMLP


class EmuMLP(LlamaMLP):
    """Keys and names of attributes in quotes are not renamed, as those in code are not."""

    def by_key(self):
        return self.sizes["llama_size"] + self.sizes["kept"]

    def by_name(self):
        return getattr(self, "llama_size", 0)

    def by_keyword(self):
        return self.named(llama_scale=1)

    def by_value(self):
        return self.kind("llama")

    def replaced(self):
        return "llama_replaced"

    def by_new_key(self):
        return self.sizes["emu_size"]

    def by_path(self):
        return self.state()["llama.weight"]

    def state(self):
        state = super().state()
        return state["llama.bias"]

    def by_parameter(self, kwargs):
        kwargs["llama_config"] = 1
        return self.called(**kwargs)


class EmuKnowingMLP(LlamaMLP):
    def by_either(self, sizes):
        return sizes.get("llama_size", sizes.get("emu_knowing_size", sizes.get("emu_size")))


__all__ = ["EmuMLP", "EmuKnowingMLP"]
