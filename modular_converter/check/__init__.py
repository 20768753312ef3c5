"""Whether generated files are what their modular files give, and why not."""
