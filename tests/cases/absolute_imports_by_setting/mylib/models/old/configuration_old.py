class OldConfig:
    size = 8
