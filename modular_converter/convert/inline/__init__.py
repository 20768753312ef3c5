"""The definitions that a generated file needs, in their order."""
