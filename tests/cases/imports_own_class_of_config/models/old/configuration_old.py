class OldConfig:
    model_type = "old"

    def __init__(self, mode="fast"):
        self.mode = mode
