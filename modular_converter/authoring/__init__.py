"""From flat models to modular files: the inverse of the conversion, proven by converting back."""
