class LlamaMLP:
    def __init__(self, config):
        self.llama_size = 2
        self.sizes = {"llama_size": 3, "kept": 1}

    def named(self, **kwargs):
        return kwargs["llama_scale"]

    def replaced(self):
        return "llama_replaced"

    def kind(self, kind):
        return 1 if kind == "llama" else 2

    def state(self):
        return {"llama.weight": 1, "llama.bias": 2}

    def called(self, llama_config):
        return llama_config
