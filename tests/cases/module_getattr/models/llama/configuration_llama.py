class LlamaConfig:
    model_type = "llama"
