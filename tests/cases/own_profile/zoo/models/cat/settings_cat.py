class CatSettings:
    model_type = "cat"

    def __init__(self, width=8):
        self.width = width
