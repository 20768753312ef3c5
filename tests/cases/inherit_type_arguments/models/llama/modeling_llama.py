from typing import Generic, TypeVar


KeyT = TypeVar("KeyT")
LlamaT = TypeVar("LlamaT")


class LlamaHolder(Generic[LlamaT]):
    def first(self, value: LlamaT) -> LlamaT:
        return value


class LlamaMap(LlamaHolder[LlamaT], Generic[KeyT, LlamaT]):
    def put(self, key: KeyT, value: LlamaT):
        return key, self.first(value)


class LlamaBox(LlamaHolder[KeyT], Generic[KeyT]):
    def get(self):
        return self
