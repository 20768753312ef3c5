class LlamaMLP:
    _width = 2

    @property
    def width(self):
        return self._width

    @width.setter
    def width(self, value):
        self._width = value

    def forward(self, x, scale=1):
        return x * scale

    def reset(self):
        """Forget everything."""
