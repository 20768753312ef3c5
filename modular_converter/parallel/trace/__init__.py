"""A forward of a small model, recorded as plain values: operations, tensors, module calls, sources of integers."""
