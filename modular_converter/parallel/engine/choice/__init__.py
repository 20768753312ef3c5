"""Choose the plan for a model, and check that it fits."""
