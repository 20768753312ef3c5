from ..big_bird.modeling_big_bird import BigBirdLayer


class EmuLayer(BigBirdLayer):
    pass
