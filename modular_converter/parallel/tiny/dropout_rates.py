"""The rates of dropout of a model, which modules and configurations hold as plain numbers."""

from __future__ import annotations


def dropout_rates(holder: object) -> list[str]:
    """The attributes of a module or configuration that hold such a rate, by their names: `dropout`, `drop_path`, `p`."""
    return [
        name for name, value in vars(holder).items() if isinstance(value, float) and ("drop" in name or name == "p")
    ]


def skips_layers(name: str, rate: object) -> bool:
    """Whether an attribute is the rate at which whole layers are left out."""
    return "layerdrop" in name and isinstance(rate, float)
