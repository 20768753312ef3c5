from ..llama.modeling_llama import LlamaMLP


class EmuConv: pass


class EmuMLP(LlamaMLP):
	def extra(self):
		return 1


setattr(EmuMLP, "tag", 6)
