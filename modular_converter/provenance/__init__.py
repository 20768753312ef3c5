"""Where the lines of generated files come from, and where the lines of modular files end up."""
