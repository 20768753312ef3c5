class AutoModel:
    pass
