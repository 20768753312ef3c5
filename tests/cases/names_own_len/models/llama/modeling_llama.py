class LlamaMLP:
    def f(self):
        return len([1, 2])
