"""The numeric proof of a plan: in threads, in gloo processes, and through transformers' own loader."""
