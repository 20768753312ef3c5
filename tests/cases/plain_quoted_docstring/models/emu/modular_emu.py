from ..llama.modeling_llama import LlamaReader


class EmuReader(LlamaReader):
    def three(self, x):
        return x + 1

    def three_raw(self, x):
        return x + 1

    def three_single(self, x):
        return x + 1

    def plain(self, x):
        return x + 1

    def single(self, x):
        return x + 1

    def raw(self, x):
        return x + 1

    def joined(self, x):
        return x + 1

    def concatenated(self, x):
        return x + 1

    def one_line(self, x):
        return x + 1

    def own(self, x):
        "The child's."
        return x + 1

    def inserted(self, x):
        super().inserted(x)
        return x + 2
