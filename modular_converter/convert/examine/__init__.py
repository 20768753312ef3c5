"""Whether a generated text would work: it compiles, its names exist, its classes can be created."""
