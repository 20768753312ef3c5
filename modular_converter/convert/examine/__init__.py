"""Whether a generated text would work, before it counts: it compiles, its names exist, its classes can be made."""
