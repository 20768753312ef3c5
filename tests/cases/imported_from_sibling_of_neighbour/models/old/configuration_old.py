def old_width(x):
    return 2 * x


class OldConfig:
    def width(self):
        return old_width(1)
