class LlamaConfig:
    model_type = "llama"

    def __init__(self, size=1):
        self.size = size

    def to_dict(self):
        return {"size": self.size, "model_type": self.model_type}
