class ResSettings:
    width = 8
