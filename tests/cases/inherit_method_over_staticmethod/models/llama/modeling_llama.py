class LlamaMLP:
    @staticmethod
    def s(x):
        return x + 1
