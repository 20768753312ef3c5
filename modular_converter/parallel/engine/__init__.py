"""Whole models on several devices: ranks, hand-over of weights, calls, and what can go wrong."""
