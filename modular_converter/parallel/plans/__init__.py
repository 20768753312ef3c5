"""Plans as values: parsed, printed, translated to other vocabularies, matched with a model."""
