class LlamaConfig:
    model_type = "llama"
    size = 1
