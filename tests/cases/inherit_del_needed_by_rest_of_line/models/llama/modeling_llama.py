class LlamaMLP:
    def __init__(self, config):
        self.down = 1
        self.width = self.twin = [k * self.down for k in (1, 2)][1]
        try:
            pass
        finally:
            self.down = 2
