# coding=utf-8
# Copyright 2026 The New Team – all rights reserved.
#
# Licensed under a licence.
"""The docstring of the modular file: it is not carried over."""

from ..llama.modeling_llama import LlamaModel


# Said of the class by the child; the parent's lead counts for a class with a parent.
class NewModel(LlamaModel):
    name = "ñ"
