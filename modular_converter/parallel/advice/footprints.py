"""The memory of a device in any layout."""

from __future__ import annotations

from modular_converter.parallel.advice.devices import Device
from modular_converter.parallel.advice.memory import Footprint, LayoutSetting, unstaged_footprint
from modular_converter.parallel.advice.stages import staged_footprint
from modular_converter.parallel.advice.subject import ModelInQuestion
from modular_converter.parallel.errors import AdviceError


def footprint(subject: ModelInQuestion, setting: LayoutSetting, device: Device) -> Footprint:
    """The memory of a device. Raises ``PlanError`` if the model does not allow the layout, or cannot be run without data."""
    layout = setting.layout
    if setting.rows % setting.chunks:
        raise AdviceError(f"{setting.rows} rows do not divide into {setting.chunks} micro-batches")
    if setting.weight_type and subject.trains and not setting.spreads:
        raise AdviceError(f"another type of products needs data ranks, such as fsdp2; this layout is {layout}")
    groups = subject.groups(setting.shares, layout.shares)
    if layout.pp > 1:
        return staged_footprint(subject, setting, device, groups)
    use = subject.use(setting.micro_rows, setting.shares, layout.shares, setting.recompute)
    return unstaged_footprint(subject, setting, device, groups, use)
