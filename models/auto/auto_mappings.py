# Copyright 2026 The modular-converter authors.
#
# Licensed under the Apache License, Version 2.0 (the "License"); you may not use this file except in compliance
# with the License. You may obtain a copy of the License at http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software distributed under the License is distributed
# on an "AS IS" BASIS, WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
"""Model type -> configuration class: says how each model's name is spelled in its class names."""

from collections import OrderedDict


CONFIG_MAPPING_NAMES = OrderedDict(
    [
        ("bert", "BertConfig"),
        ("clip", "CLIPConfig"),
        ("gemma", "GemmaConfig"),
        ("gemma_vision", "GemmaVisionConfig"),
        ("llama", "LlamaConfig"),
        ("mistral", "MistralConfig"),
        ("roberta", "RobertaConfig"),
    ]
)
