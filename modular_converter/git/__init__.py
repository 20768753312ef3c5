"""What git knows of the work trees that models lie in."""
