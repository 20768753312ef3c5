"""A model whose weights are on the ranks: the caller's side and the rank's side."""
