"""The commands `modular-convert` and `check-modular-conversion`."""
