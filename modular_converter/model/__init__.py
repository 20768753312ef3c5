"""What code says about names, read once: scopes, what each statement binds, reads, changes and deletes."""
