"""Pipeline plans: the chain of modules in a trace, and its stages, run with only the tensors between them."""
