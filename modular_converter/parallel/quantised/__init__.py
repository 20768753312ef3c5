"""Quantised weights as plain tensors, which a plan can shard."""
