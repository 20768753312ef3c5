from enum import Enum


class LlamaKind(Enum):
    FULL = "full"
    HALF = "half"


class LlamaError(Exception):
    pass


class LlamaMLP:
    kind = LlamaKind.FULL

    def forward(self, x):
        if self.kind is LlamaKind.HALF:
            raise LlamaError
        return x
