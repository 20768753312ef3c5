"""A plan proven by numbers: in threads, in gloo processes, and through transformers' own loader."""
