from dataclasses import dataclass


@dataclass(kw_only=True, order=True)
class LlamaOutput:
    first: int
    second: int = 2


@dataclass
class LlamaState:
    size: int = 1


class LlamaPlain:
    size: int = 1
