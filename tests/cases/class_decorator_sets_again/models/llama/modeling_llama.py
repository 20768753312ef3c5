def loud(cls):
    forward = cls.forward

    def louder(self):
        return forward(self) + "!"

    cls.forward = louder
    return cls


@loud
class LlamaMLP:
    def forward(self):
        return "llama"
