from ..mamba.modeling_mamba import MambaMixer


class NewMixer(MambaMixer):
    pass
