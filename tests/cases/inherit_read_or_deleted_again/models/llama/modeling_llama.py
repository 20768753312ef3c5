class LlamaMLP:
    def __init__(self, config):
        self.up = 1
        self.down = 2
