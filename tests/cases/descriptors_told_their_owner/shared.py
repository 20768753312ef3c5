class Field:
    def __set_name__(self, owner, name):
        owner.fields = (*getattr(owner, "fields", ()), name)


class Sized:
    def __set_name__(self, owner, name):
        self.size = owner.size


class Labelled:
    def __set_name__(self, owner, name):
        self.label = f"{owner.__qualname__}.{name}"


class Deep(Labelled):
    def __set_name__(self, owner, name):
        super().__set_name__(owner, name)
        self.depth = len(owner.__mro__)


class Named:
    def __set_name__(self, owner, name):
        self.name = name
