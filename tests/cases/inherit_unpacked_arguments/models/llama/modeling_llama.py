class LlamaMLP:
    def one(self, x):
        return x + 1

    def two(self, x, y=2):
        return x - y

    def by_name(self, *, x):
        return x

    def rest(self, x, *rest):
        return x, rest

    def rest_behind_two(self, x, y, *rest):
        return rest
