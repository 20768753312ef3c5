class LlamaMLP:
    def forward(self, x):
        self.seen = x
        raise NotImplementedError
