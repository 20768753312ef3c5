"""The dropout rates in modules and configurations, which are plain numbers."""

from __future__ import annotations


def dropout_rates(holder: object) -> list[str]:
    """The names of the dropout rates of a module or configuration: `dropout`, `drop_path`, `p`."""
    return [
        name for name, value in vars(holder).items() if isinstance(value, float) and ("drop" in name or name == "p")
    ]


def skips_layers(name: str, rate: object) -> bool:
    """Whether an attribute is the rate of skipped layers."""
    return "layerdrop" in name and isinstance(rate, float)
