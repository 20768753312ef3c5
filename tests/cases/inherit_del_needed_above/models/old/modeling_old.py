class OldMLP:
    def __init__(self, config):
        self.width = config.width
        self.height = config.height
        self.depth = config.depth

    def forward(self, value):
        scaled = value * self.width
        return scaled
