"""What plans do, and how many models have one, as tables."""
