"""A plan applied to a model: shards, parameters that communicate, collectives with gradients."""
