class LlamaAttention:
    def forward(self, x):
        return x


class LlamaMLP:
    def forward(self, x):
        return x
