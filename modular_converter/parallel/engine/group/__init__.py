"""Use inside a process group that the caller started (torchrun)."""
