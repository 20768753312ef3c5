"""Tensor-parallel plans: traced from a small instance, derived by a solver without torch, proven, written.

Flow: ``tiny`` builds -> ``trace`` records -> ``derive`` solves -> ``Plan`` -> ``verify`` proves -> ``write``.
Nothing is imported here, so that ``modular-plan --help`` stays quick; import the room that you need.
"""
