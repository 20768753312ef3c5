class LlamaMLP:
    def parts(self, number):
        for part in range(number):
            yield part
