"""The work of a model at its full size, layer by layer, counted in a run on tensors without data."""
