LLAMA_SIZES = [7, 13]


def largest(sizes):
    return max(sizes)


class LlamaMLP:
    size = 7

    def forward(self, x):
        return x * self.size


class LlamaGate(LlamaMLP):
    pass
