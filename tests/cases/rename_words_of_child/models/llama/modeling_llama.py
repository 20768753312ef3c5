TABLE = {"llama_key": 1}


def helper(llama_x=1):
    return llama_x, TABLE


class LlamaPart:
    def __init__(self):
        self.llama_value = 3


class LlamaMLP:
    def __init__(self):
        self.part = LlamaPart()

    def apply(self, function):
        return function(llama_k=2), helper()

    def call(self):
        return self.step(llama_step=2)

    def step(self, llama_step):
        return llama_step
