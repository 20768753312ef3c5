"""Settings: the conventions of a library (a profile, as data), overlaid with the project's table."""
