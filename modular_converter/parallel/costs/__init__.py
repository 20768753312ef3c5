"""The work of each layer of a model at its full size, counted in a run on tensors without data."""
