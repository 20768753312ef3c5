class LlamaMLP:
    def __init__(self, config, size=2, **kwargs):
        self.kwargs = kwargs
        if config is None:
            return
        self.size = size


class LlamaGate:
    def forward(self, states, scale=1, *, bias=0):
        for one in states:
            if one > bias:
                return one * scale
        return bias
