"""Tables about plans: their effects, and the models that have plans."""
