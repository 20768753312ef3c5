"""The plan for the model in hand: given, in its classes or derived; fitted and proven at its own sizes, without its data."""
