class Root:
    def __init__(self):
        self.depth = 0
