from ..gpt.modeling_gpt import GPTLayer


class NewOneLayer(GPTLayer):
    pass
