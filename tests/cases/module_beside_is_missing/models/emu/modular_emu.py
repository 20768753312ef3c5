from ...absent_above import above
from ..auto.modeling_auto import AutoModel
from ..llama.absent_beside_llama import beside_llama
from ..llama.modeling_llama import LlamaMLP
from .absent import one, two
from .configuration_emu import EmuConfig
from .helper import X
from .processing_emu import EmuProcessor
from .tokenization_emu import EmuTokenizer


try:
    from .absent_but_tried import tried
except ImportError:
    tried = None


class EmuProcessor:
    pass


class EmuMLP(LlamaMLP):
    config_class = EmuConfig
    others = (above, AutoModel, beside_llama, one, two, X, EmuTokenizer, tried)
