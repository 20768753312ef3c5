"""The commands of ``modular-plan``."""
