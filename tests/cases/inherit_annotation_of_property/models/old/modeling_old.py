class OldMLP:
    @property
    def width(self):
        return 8

    def scale(self):
        return 2

    if True:
        scale = 3
