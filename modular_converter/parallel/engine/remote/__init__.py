"""A model whose weights are on the ranks, as its caller holds it and as a rank holds it."""
