class LlamaMLP:
    def __init__(self):
        self.__size = 1

    def width(self):
        return self._LlamaMLP__size


class LlamaGate(LlamaMLP):
    def width(self):
        return 2 * self._LlamaMLP__size
