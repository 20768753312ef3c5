"""Which layout of a model fits on which devices, how fast it will be, and why the others lose."""
