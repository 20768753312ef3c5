class LlamaMLP:
    scale = 1
    kept = 2

    def size(self):
        return 1

    def by_attribute(self):
        return LlamaMLP.scale

    def by_method(self):
        return LlamaMLP.size(self)

    def of_what_stays(self):
        return LlamaMLP.kept

    def overridden(self):
        return LlamaMLP.scale
