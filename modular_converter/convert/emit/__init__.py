"""Generated files as text: kinds, imports, the notice on top, formatting."""
