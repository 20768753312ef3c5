"""All tools that take plans, by name."""

from __future__ import annotations

from modular_converter.parallel.exports.deepspeed import DEEPSPEED
from modular_converter.parallel.exports.library import ACCELERATE, TORCH, TRANSFORMERS
from modular_converter.parallel.exports.serving import SGLANG, VLLM
from modular_converter.parallel.exports.torchtitan import TORCHTITAN
from modular_converter.parallel.exports.vocabulary import Vocabulary


_ALL = (TRANSFORMERS, ACCELERATE, TORCH, VLLM, SGLANG, TORCHTITAN, DEEPSPEED)
TOOLS: dict[str, Vocabulary] = {tool.name: tool for tool in _ALL}
