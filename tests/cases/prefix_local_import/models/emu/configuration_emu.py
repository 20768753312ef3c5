class EmuTextConfig:
    pass
