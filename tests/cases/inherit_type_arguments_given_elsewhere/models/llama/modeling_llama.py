from typing import Generic, TypeVar


ItemT = TypeVar("ItemT")


class LlamaBox(Generic[ItemT]):
    def __init__(self, value: ItemT):
        self.value = value


class LlamaPair(LlamaBox[tuple]):
    def first(self):
        return self.value[0]
