class LlamaMLP:
    size = 1

    def forward(self, x):
        return x
