"""A sharded model without gradients: plain parameters, fused norms, quick sums, and ranks that agree in `generate`."""
