"""``parallelize`` inside a process group that the caller has started (torchrun)."""
