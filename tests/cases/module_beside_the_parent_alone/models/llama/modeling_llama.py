from .. import above
from . import utils_llama
from .configuration_llama import LlamaConfig
from .helper import HELPER
from .not_there_either import GONE
from .shared import SHARED
from .taken import TAKEN
from .unused import UNUSED


def scale():
    from .extra import EXTRA

    return EXTRA


class LlamaMLP:
    config_class = LlamaConfig

    def forward(self, x: "HELPER"):
        try:
            from .tried import TRIED
        except ImportError:
            TRIED = 0
        return above.ABOVE, utils_llama.UTILS, GONE, SHARED, TAKEN, scale(), TRIED, x.UNUSED
