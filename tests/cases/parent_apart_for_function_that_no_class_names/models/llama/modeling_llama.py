from typing import Generic, TypeVar


T = TypeVar("T")


class LlamaBox(Generic[T]):
    size = 1
