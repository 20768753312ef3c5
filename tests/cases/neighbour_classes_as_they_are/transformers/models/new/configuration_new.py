class NewConfig:
    pass
