class LlamaBlock:
    def size(self):
        return "block"

    def depth(self):
        return 1


class LlamaMiddle(LlamaBlock):
    def depth(self):
        return 2


class LlamaLayer(LlamaMiddle):
    def both(self):
        return self.size(), self.depth()
