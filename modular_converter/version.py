"""The version of this tool, by which settings, the cache and reports know it."""

__version__ = "0.1.0"
