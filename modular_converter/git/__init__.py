"""Questions to git about the work trees of models."""
