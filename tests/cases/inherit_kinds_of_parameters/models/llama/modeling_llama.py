class LlamaMLP:
    def forward(self, x, w=0, /, y=1, *, z=2, **kwargs):
        return x, w, y, z, kwargs
