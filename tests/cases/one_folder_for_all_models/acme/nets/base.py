class Net:
    """What all nets are."""
