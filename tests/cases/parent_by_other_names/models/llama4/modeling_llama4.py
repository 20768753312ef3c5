class Llama4Gate:
    pass
