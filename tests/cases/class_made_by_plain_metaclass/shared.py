class Calling(type):
    def __call__(cls, *args):
        instance = super().__call__(*args)
        instance.is_made = True
        return instance


class Base(metaclass=Calling):
    pass
