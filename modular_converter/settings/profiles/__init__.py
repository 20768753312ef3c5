"""The built-in profiles: the conventions of a library, as a table with the keys of `[tool.modular-converter]`."""
