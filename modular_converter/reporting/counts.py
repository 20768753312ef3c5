"""Counts with their noun in singular or plural."""

from __future__ import annotations


def count(number: int, noun: str) -> str:
    """`1 modular file`, `3 modular files`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
