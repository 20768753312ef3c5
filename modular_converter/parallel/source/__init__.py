"""Plans written into the source of a model."""
