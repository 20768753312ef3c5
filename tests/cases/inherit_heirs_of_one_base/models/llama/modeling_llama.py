from abc import ABC, abstractmethod


class LlamaAttention(ABC):
    def __init__(self, scale):
        self.scale = scale

    @abstractmethod
    def scores(self, x): ...

    def forward(self, x):
        return self.scores(x) * self.scale


class LlamaSdpa(LlamaAttention):
    def scores(self, x):
        return x + 1
