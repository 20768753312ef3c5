class LlamaMLP:
    def forward(self, x):
        return scale(x)


def scale(x):
    return 2 * x
