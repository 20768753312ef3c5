"""The choice of the plan for a model, and the check that it fits."""
