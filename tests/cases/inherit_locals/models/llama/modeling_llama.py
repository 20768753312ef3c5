class LlamaMLP:
    def forward(self, x):
        y = 1
        return sorted(locals())

    def alone(self, x):
        return sorted(locals())
