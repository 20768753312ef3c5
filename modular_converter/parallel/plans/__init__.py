"""Plans as values: parsed, printed, written in other vocabularies, matched with a model."""
