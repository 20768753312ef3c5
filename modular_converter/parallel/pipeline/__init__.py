"""Pipeline plans: the chain of modules in a trace, and its stages run with nothing but what is handed over."""
