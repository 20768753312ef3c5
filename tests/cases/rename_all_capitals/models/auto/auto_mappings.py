CONFIG_MAPPING_NAMES = {"gpt": "GPTConfig", "new_one": "NewOneConfig"}
