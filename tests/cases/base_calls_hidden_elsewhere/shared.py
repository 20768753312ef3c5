class Root:
    def describe(self):
        return ["root"]


class Mixin:
    def describe(self):
        return ["mixin"]

    def name(self):
        return "mixin"
