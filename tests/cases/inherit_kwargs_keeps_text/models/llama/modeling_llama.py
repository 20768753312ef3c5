class LlamaBase:
    def __init__(self, size=8, theta=1.0, bias=True, **kwargs):
        self.size = size
        self.theta = theta
        self.bias = bias
