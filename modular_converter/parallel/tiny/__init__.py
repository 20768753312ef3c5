"""Small instances of any model: a shrunken configuration, random weights, inputs from the forward signature."""
