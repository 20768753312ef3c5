LOW = HIGH = 3


class LlamaMLP:
    def forward(self, x):
        return x - LOW
