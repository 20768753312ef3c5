from ..filter.modeling_filter import FilterModel


class EmuModel(FilterModel):
    pass
