"""Which definitions a generated file needs, and in which order."""
