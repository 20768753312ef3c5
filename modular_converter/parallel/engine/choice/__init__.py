"""Which plan a model is run with, and whether it fits."""
