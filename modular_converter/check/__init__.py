"""The check: whether generated files equal their conversion, and the reason if they do not."""
