def scale(x):
    return 9 * x


class LlamaMLP:
    def forward(self, x):
        return max(scale(x), 1)
