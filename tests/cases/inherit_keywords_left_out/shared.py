TABLE = {}


class Entered:
    def __init_subclass__(cls, key=None, **kwargs):
        super().__init_subclass__(**kwargs)
        if key is not None:
            TABLE[key] = cls
