"""What code says, read once: statements of modules, names that code binds and reads, imports and their definitions."""
