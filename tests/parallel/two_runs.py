"""What a process is told in two runs of something that one process alone does otherwise."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import torch.distributed as dist


def tell_of_two_runs(run: Callable[[], object], stays_s: float) -> None:
    """Print what each of two runs raises, and whether both ended in time; then stay for a while, so that others are told by
    this one's notes, and not by its end.
    """
    told, start = [], time.monotonic()
    for _ in range(2):
        try:
            run()
            told.append("")
        except Exception as error:
            told.append(f"{type(error).__name__}: {error}")
    late = time.monotonic() - start
    print(json.dumps({"process": dist.get_rank(), "told": told, "within": late < 60}), flush=True)
    time.sleep(stays_s)
