from ..llama.modeling_llama import LlamaCache


class EmuCache(LlamaCache):
    @LlamaCache.size.setter
    def size(self, value):
        self._size = 2 * value

    @LlamaCache.width.setter
    def width(self, value):
        self._size = value // 10


__all__ = ["EmuCache"]
