LOW, HIGH = 1, 2


class BertNorm:
    def forward(self, x):
        return x - LOW
