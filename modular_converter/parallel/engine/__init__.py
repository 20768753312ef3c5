"""Whole models on several devices: ranks, transfer of weights, calls, and failures."""
