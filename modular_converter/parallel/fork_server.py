"""The process from which ranks are forked. It has imported what each rank needs: the seconds of this are spent once."""

from __future__ import annotations

import multiprocessing
from typing import Any


def fork_server(*modules: str) -> Any:
    """The context of ``multiprocessing`` for ranks that are forked from one process.

    Args:
        modules: what that process imports beside transformers, if it does not run yet.
    """
    import torch

    context = multiprocessing.get_context("forkserver")
    # With torchao, transformers asks for GPUs while it is imported, and no child of a process that has asked can use one.
    library = "transformers" if torch.cuda.is_available() else "transformers.modeling_utils"
    context.set_forkserver_preload([library, *modules])
    return context
