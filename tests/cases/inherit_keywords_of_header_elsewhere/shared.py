class Base:
    def __init_subclass__(cls, kind="none", **kwargs):
        super().__init_subclass__(**kwargs)
        cls.kind = kind
