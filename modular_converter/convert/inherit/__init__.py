"""Each class of a modular file laid over its parent."""
