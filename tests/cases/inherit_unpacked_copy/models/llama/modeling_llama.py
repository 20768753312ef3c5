class LlamaPop:
    def __init__(self, **kwargs):
        self.rope = kwargs.pop("rope", None)
