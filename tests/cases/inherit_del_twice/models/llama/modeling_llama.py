class LlamaMLP:

    def __init__(self, config=3, size=2, flag=False):
        self.down = 1
