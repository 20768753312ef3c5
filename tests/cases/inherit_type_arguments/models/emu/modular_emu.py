from ..llama.modeling_llama import KeyT, LlamaBox, LlamaMap


class EmuMap(LlamaMap[KeyT, int]):
    def put(self, key: KeyT, value: int):
        return super().put(key, value)


class EmuBox(LlamaBox[list[int]]):
    pass


__all__ = ["EmuBox", "EmuMap"]
