"""The form of a sharded model for inference."""
