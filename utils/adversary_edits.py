"""Edits that an adversary would make of published files, told by `--breaking` without running anything, against classes
that are really made of the edited texts: `python utils/adversary_edits.py --update`.

Each edit changes one file of the installed transformers, in memory. Old and new file are imported, their models are built
on the device `meta`, and the entries of the state dicts and the signatures that really change are compared with those that
the texts tell. An edit is `right` if both are the same and the text is certain of what changes, `unsure` if it has more
than what changes, and says that of each such entry; else it is `wrong`. `--update` puts the table into
docs/figures/change.md.
"""

from __future__ import annotations

import argparse
import datetime
import functools
import importlib
import os
import sys
import types
import warnings
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple


sys.path[:0] = [
    os.path.dirname(os.path.abspath(__file__)),
    os.path.dirname(os.path.dirname(os.path.abspath(__file__))),
]
os.environ["HF_HUB_OFFLINE"] = "1"

import torch  # noqa: E402
import transformers  # noqa: E402
from check_breaking import _facts_of, _is_unknown, _signature_changes  # noqa: E402
from marked_pages import write_part  # noqa: E402
from real_states import _built, _signatures  # noqa: E402

from modular_converter.breaking.older import tree_at  # noqa: E402
from modular_converter.settings.load import profile_settings  # noqa: E402


PAGE = Path(__file__).parents[1] / "docs" / "figures" / "change.md"
MODELS = os.path.join(os.path.dirname(transformers.__file__), "models")
GATE = "self.gate_proj = nn.Linear(self.hidden_size, self.intermediate_size, bias=config.mlp_bias)"
LAYERS = "[LlamaDecoderLayer(config, layer_idx) for layer_idx in range(config.num_hidden_layers)]"
NORM = "self.norm = LlamaRMSNorm(config.hidden_size, eps=config.rms_norm_eps)"
HEAD = "self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)"
ROTARY = "self.rotary_emb = LlamaRotaryEmbedding(config=config)"
MODELING, CONFIGURATION = "llama/modeling_llama.py", "llama/configuration_llama.py"
MATCH = """match config.hidden_act:
            case "gelu":
                self.a_proj = nn.Linear(2, 2)
            case "silu":
                self.b_proj = nn.Linear(2, 2)"""
WHILE = """self.more = nn.ModuleList()
        while len(self.more) < 2:
            self.more.append(nn.Linear(2, 2))"""
TOP = "def rotate_half(x):"
MLP = "class LlamaMLP(nn.Module):\n    def __init__(self, config):\n        super().__init__()"
PRE = "class LlamaPreTrainedModel(PreTrainedModel):\n"
TOK = "class LlamaForTokenClassification(GenericForTokenClassification, LlamaPreTrainedModel): ..."
RMS = "self.weight = nn.Parameter(torch.ones(hidden_size))"
LOGITS = "logits_to_keep: int | torch.Tensor = 0"
TP = "    pretraining_tp: int | None = 1\n"
POST = "        super().__post_init__(**kwargs)"
COUNT = "num_hidden_layers: int = 32"
BERT = "bert/modeling_bert.py"
T5 = "t5/modeling_t5.py"
VIT = "vit/modeling_vit.py"
MAMBA = "mamba/modeling_mamba.py"
CLIP = "clip/modeling_clip.py"
MIXTRAL = "mixtral/modeling_mixtral.py"
BERT_CONFIG = "bert/configuration_bert.py"
VIT_CONFIG = "vit/configuration_vit.py"
CLIP_CONFIG = "clip/configuration_clip.py"
T5_CONFIG = "t5/configuration_t5.py"
MIXTRAL_CONFIG = "mixtral/configuration_mixtral.py"
WHISPER = "whisper/modeling_whisper.py"
WHISPER_CONFIG = "whisper/configuration_whisper.py"
GPT2 = "gpt2/modeling_gpt2.py"
GPT2_CONFIG = "gpt2/configuration_gpt2.py"
GEMMA2 = "gemma2/modeling_gemma2.py"
LLAVA = "llava/modeling_llava.py"
WAV2VEC2 = "wav2vec2/modeling_wav2vec2.py"
QWEN2_MOE = "qwen2_moe/modeling_qwen2_moe.py"
SAM = "sam/modeling_sam.py"
POOL = "        self.dense = nn.Linear(config.hidden_size, config.hidden_size)\n        self.activation = nn.Tanh()"
DEC = "self.decoder = nn.Linear(config.hidden_size, config.vocab_size, bias=True)"


def _after(anchor: str, *lines: str) -> str:
    return "".join([anchor, *(f"\n        {one}" for one in lines)])


EDITS: dict[str, tuple[str, str, str]] = {
    "a rename": (MODELING, "self.o_proj", "self.out_proj"),
    "a bias": (MODELING, GATE, GATE.replace("config.mlp_bias", "True")),
    "a bias by a partial call": (MODELING, GATE, "self.gate_proj = __import__('functools').partial(nn.Linear, bias=True)(2, 2)"),
    "a partial call": (MODELING, GATE, "from functools import partial\n        self.gate_proj = partial(nn.Linear, bias=True)(2, 2)"),
    "names in a loop": (MODELING, GATE, 'for name in ("gate_proj", "extra_proj"):\n            setattr(self, name, nn.Linear(2, 2, bias=False))'),
    "names by an f-string": (MODELING, GATE, 'for n in range(3):\n            self.add_module(f"part_{n}", nn.Linear(2, 2))\n        self.gate_proj = self.part_0'),
    "a match": (MODELING, GATE, GATE + "\n        " + MATCH),
    "a match that nothing tells": (MODELING, GATE, GATE + "\n        " + MATCH.replace("config.hidden_act", "config.name_or_path + 'silu'")),
    "a while loop": (MODELING, NORM, NORM + "\n        " + WHILE),
    "a list times a number": (MODELING, LAYERS, "[LlamaDecoderLayer(config, 0)] * 2"),
    "map": (MODELING, LAYERS, "map(lambda n: LlamaDecoderLayer(config, n), range(2))"),
    "a generator": (MODELING, LAYERS, "LlamaDecoderLayer(config, n) for n in range(2)"),
    "a function within": (MODELING, NORM, "def make(size):\n            return nn.LayerNorm(size)\n\n        self.norm = make(config.hidden_size)"),
    "a lambda": (MODELING, NORM, "make = lambda size: nn.LayerNorm(size, bias=False)\n        self.norm = make(config.hidden_size)"),
    "a table of layers": (MODELING, NORM, 'self.norm = {"silu": nn.LayerNorm, "gelu": nn.Identity}[config.hidden_act](config.hidden_size)'),
    "a choice": (MODELING, NORM, "self.norm = nn.Identity() if config.mlp_bias else nn.LayerNorm(config.hidden_size)"),
    "an or": (MODELING, NORM, "self.norm = None or nn.LayerNorm(config.hidden_size)"),
    "a walrus": (MODELING, NORM, "if (size := config.hidden_size) > 3:\n            self.norm = nn.LayerNorm(size)"),
    "a try": (MODELING, NORM, "try:\n            self.norm = nn.LayerNorm(config.hidden_size)\n        except ValueError:\n            self.norm = nn.Identity()"),
    "a tuple": (MODELING, NORM, "self.norm, self.other = nn.Identity(), nn.LayerNorm(config.hidden_size)"),
    "arguments by a star": (MODELING, HEAD, "sizes = (config.hidden_size, config.vocab_size)\n        self.lm_head = nn.Linear(*sizes)"),
    "arguments by two stars": (MODELING, HEAD, 'given = {"bias": True}\n        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, **given)'),
    "a list of parameters": (MODELING, NORM, NORM + "\n        self.scales = nn.ParameterList([torch.ones(2) for _ in range(3)])"),
    "a dict of parameters": (MODELING, NORM, NORM + '\n        self.scales = nn.ParameterDict({"a": nn.Parameter(torch.ones(2))})'),
    "a layer that no table has": (MODELING, NORM, NORM + "\n        self.part = nn.TransformerEncoderLayer(8, 2)"),
    "a buffer that is kept": (MODELING, "self.inv_freq = nn.Buffer(inv_freq, persistent=False)", "self.inv_freq = nn.Buffer(inv_freq)"),
    "a buffer by its name": (MODELING, ROTARY, ROTARY + '\n        self.register_buffer("steps", torch.zeros(4), persistent=not config.mlp_bias)'),
    "a module taken away": (MODELING, ROTARY, ROTARY + "\n        del self.norm"),
    "a layer taken out of a list": (MODELING, ROTARY, ROTARY + "\n        del self.layers[0].mlp"),
    "a part that is set to None": (MODELING, ROTARY, ROTARY + "\n        self.layers[0].mlp = None\n        self.norm = None"),
    "entries by `_modules`": (MODELING, ROTARY, ROTARY + '\n        self._modules["second"] = nn.Linear(2, 2)'),
    "a dict that grows": (MODELING, ROTARY, ROTARY + '\n        self.parts = nn.ModuleDict()\n        self.parts.update({"one": nn.Linear(2, 2)})'),
    "a list that grows": (MODELING, ROTARY, ROTARY + "\n        self.parts = nn.ModuleList([nn.Identity()])\n        self.parts += [nn.Linear(2, 2)]"),
    "a base between": (MODELING, "class LlamaMLP(nn.Module):\n    def __init__(self, config):\n        super().__init__()", "class Between(nn.Module):\n    def __init__(self, config):\n        super().__init__()\n        self.between = nn.Linear(2, 2)\n\n\nclass LlamaMLP(Between):\n    def __init__(self, config):\n        super().__init__(config)"),
    "a method that makes it": (MODELING, NORM, "self._make(config)\n\n    def _make(self, config):\n        " + NORM.replace("self.norm", "self.final_norm") + "\n        self.norm = self.final_norm\n\n    def _rest(self, config):"),
    "another parameter by position": (MODELING, "attention_mask: torch.Tensor | None = None,\n        position_ids: torch.LongTensor | None = None,\n        cache: Cache | None = None,\n        inputs_embeds", "position_ids: torch.LongTensor | None = None,\n        attention_mask: torch.Tensor | None = None,\n        cache: Cache | None = None,\n        inputs_embeds"),
    "a default in other words": (MODELING, "logits_to_keep: int | torch.Tensor = 0", "logits_to_keep: int | torch.Tensor = 2 - 2"),
    "a default by a constant": (MODELING, "logits_to_keep: int | torch.Tensor = 0", "logits_to_keep: int | torch.Tensor = KEEP"),
    "a parameter that is gone": (MODELING, "\n        logits_to_keep: int | torch.Tensor = 0,", ""),
    "a setting's default": (CONFIGURATION, "hidden_size: int = 4096", "hidden_size: int = 2048"),
    "a setting in other words": (CONFIGURATION, "hidden_size: int = 4096", "hidden_size: int = 4 * 1024"),
    "a setting by a validator": (CONFIGURATION, "(default=0.02)", "(default=0.01)"),
    "a setting that is gone": (CONFIGURATION, "    pretraining_tp: int | None = 1\n", ""),
    "a setting that is new": (CONFIGURATION, "    pretraining_tp: int | None = 1\n", "    pretraining_tp: int | None = 1\n    pace: float = 0.5\n"),
    "blocks by an ordered dict": (MODELING, GATE, 'from collections import OrderedDict\n        self.gate_proj = nn.Sequential(OrderedDict([("first", nn.Linear(2, 2)), ("second", nn.LayerNorm(2))]))'),
    "blocks by an ordered dict with names": (MODELING, GATE, 'import collections\n        self.gate_proj = nn.Sequential(collections.OrderedDict(first=nn.Linear(2, 2), act=nn.ReLU()))'),
    "buffers in a loop": (MODELING, ROTARY, ROTARY + '\n        for n, size in enumerate((2, 4)):\n            self.register_buffer(f"table_{n}", torch.zeros(size), persistent=n == 0)'),
    "parameters in a loop": (MODELING, ROTARY, ROTARY + '\n        for name in ["alpha", "beta"]:\n            self.register_parameter(name, nn.Parameter(torch.zeros(2)))\n        self.register_parameter("gamma", None)'),
    "weights in a mixin": (MODELING, "class LlamaMLP(nn.Module):\n    def __init__(self, config):\n        super().__init__()", "class Scaled:\n    def make_scale(self, size):\n        self.scale = nn.Parameter(torch.ones(size))\n\n\nclass LlamaMLP(Scaled, nn.Module):\n    def __init__(self, config):\n        super().__init__()\n        self.make_scale(2)"),
    "a mixin that calls super": (MODELING, "class LlamaMLP(nn.Module):\n    def __init__(self, config):\n        super().__init__()", "class Scaled:\n    def __init__(self):\n        super().__init__()\n        self.scale = nn.Parameter(torch.ones(2))\n\n\nclass LlamaMLP(Scaled, nn.Module):\n    def __init__(self, config):\n        super().__init__()"),
    "layers of two kinds": (MODELING, LAYERS, "[LlamaDecoderLayer(config, n) if n % 2 else LlamaMLP(config) for n in range(config.num_hidden_layers)]"),
    "layers by a filter": (MODELING, LAYERS, "[LlamaDecoderLayer(config, n) for n in range(config.num_hidden_layers) if n % 2 == 7]"),
    "a layer by its number": (MODELING, "self.mlp = LlamaMLP(config)", "self.mlp = LlamaMLP(config)\n        if layer_idx == 0:\n            self.first = nn.Linear(2, 2)"),
    "a layer by the type in a list": (MODELING, "self.mlp = LlamaMLP(config)", 'self.mlp = LlamaMLP(config) if ["full", "sliding"][layer_idx % 2] == "full" else nn.LayerNorm(4)'),
    "a dict comprehension": (MODELING, NORM, NORM + '\n        self.heads = nn.ModuleDict({name: nn.Linear(2, 2) for name in ("one", "two")})'),
    "a list that is extended": (MODELING, NORM, NORM + "\n        self.heads = nn.ModuleList()\n        self.heads.extend(nn.Linear(2, 2) for _ in range(3))"),
    "a list with an insert": (MODELING, NORM, NORM + "\n        self.heads = nn.ModuleList([nn.ReLU()])\n        self.heads.insert(0, nn.Linear(2, 2))"),
    "a deep copy": (MODELING, NORM, NORM + "\n        import copy\n        self.second = copy.deepcopy(self.norm)"),
    "clones": (MODELING, "def rotate_half(x):", "def clones(module, number):\n    import copy\n    return nn.ModuleList([copy.deepcopy(module) for _ in range(number)])\n\n\nclass Held(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.parts = clones(nn.Linear(2, 2), 3)\n\n\ndef rotate_half(x):"),
    "a tied weight": (MODELING, HEAD, HEAD + "\n        self.lm_head.weight = self.model.embed_tokens.weight"),
    "a shared module": (MODELING, HEAD, HEAD + "\n        self.shared = self.model.norm"),
    "a class as a variable": (MODELING, "class LlamaModel(LlamaPreTrainedModel):\n", "class LlamaModel(LlamaPreTrainedModel):\n    norm_class = nn.LayerNorm\n\n"),
    "a part by a class variable": (MODELING, NORM, "self.norm = self.norm_class(config.hidden_size)\n\n    norm_class = nn.LayerNorm\n\n    def rest(self):"),
    "a class method that makes it": (MODELING, NORM, "self.norm = self.made(config)\n\n    @classmethod\n    def made(cls, config):\n        return nn.LayerNorm(config.hidden_size)\n\n    def rest(self):"),
    "a table of the module": (MODELING, "def rotate_half(x):", 'NORMS = {"silu": nn.LayerNorm}\n\n\ndef rotate_half(x):'),
    "an assigned dict entry": (MODELING, NORM, NORM + '\n        self.heads = nn.ModuleDict()\n        for name in ("one", "two"):\n            self.heads[name] = nn.Linear(2, 2)'),
    "a weight norm": (MODELING, HEAD, HEAD + "\n        self.lm_head = nn.utils.parametrizations.weight_norm(self.lm_head)"),
    "a spectral norm": (MODELING, HEAD, HEAD + "\n        self.lm_head = nn.utils.parametrizations.spectral_norm(self.lm_head)"),
    "a module's own init": (MODELING, "    def __init__(self, hidden_size, eps: float = 1e-6) -> None:", "    def __init__(self, hidden_size, eps: float = 1e-6, *, extra=True) -> None:"),
    "a parameter in the middle": (MODELING, "cache: Cache | None = None,\n        inputs_embeds", "extra: int | None = None,\n        cache: Cache | None = None,\n        inputs_embeds"),
    "keyword only": (MODELING, "cache: Cache | None = None,\n        inputs_embeds", "*,\n        cache: Cache | None = None,\n        inputs_embeds"),
    "another base": (MODELING, "class LlamaForTokenClassification(GenericForTokenClassification, LlamaPreTrainedModel): ...", "class LlamaForTokenClassification(LlamaPreTrainedModel):\n    def __init__(self, config):\n        super().__init__(config)\n        self.classifier = nn.Linear(2, 2)"),
    "an alias": (MODELING, "class LlamaForTokenClassification(GenericForTokenClassification, LlamaPreTrainedModel): ...", "class LlamaTagger(GenericForTokenClassification, LlamaPreTrainedModel):\n    def __init__(self, config):\n        super().__init__(config)\n        self.more = nn.Linear(2, 2)\n\n\nLlamaForTokenClassification = LlamaTagger"),
    "a decision by two settings": (MODELING, NORM, "if config.hidden_size > 100 and config.hidden_act in (\"silu\", \"gelu\"):\n            self.norm = nn.LayerNorm(config.hidden_size)\n        else:\n            self.norm = nn.Identity()"),
    "an attribute that may lack": (MODELING, NORM, 'if getattr(config, "use_more", True):\n            self.more = nn.Linear(2, 2)\n        ' + NORM),
    "hasattr": (MODELING, NORM, 'if hasattr(config, "use_more"):\n            self.more = nn.Linear(2, 2)\n        ' + NORM),
    "a part after post_init": (MODELING, "self.gradient_checkpointing = False\n\n        # Initialize weights and apply final processing\n        self.post_init()\n\n    @deprecate", "self.post_init()\n        self.late = nn.Linear(2, 2)\n\n    @deprecate"),
    "a setting by a constant": (CONFIGURATION, "hidden_size: int = 4096", "hidden_size: int = KEEP * 4096"),
    "a setting by a factory": (CONFIGURATION, "pretraining_tp: int | None = 1\n", "pretraining_tp: int | None = 1\n    steps: list = __import__('dataclasses').field(default_factory=lambda: [1, 2])\n"),
    "a setting that is renamed": (CONFIGURATION, "mlp_bias: bool = False", "feed_forward_bias: bool = False\n    attribute_map = {\"mlp_bias\": \"feed_forward_bias\"}"),
    "a setting that is computed": (CONFIGURATION, "        super().__post_init__(**kwargs)", "        self.intermediate_size = 2 * self.hidden_size\n        super().__post_init__(**kwargs)"),
    "parameters by a plain dict": (MODELING, NORM, NORM + '\n        self.scales = nn.ParameterDict({f"s{n}": torch.ones(2) for n in range(2)})'),
    "a for else": (MODELING, NORM, NORM + "\n        for size in (1, 2):\n            if size > 5:\n                break\n        else:\n            self.rest = nn.Linear(2, 2)"),
    "a with": (MODELING, NORM, NORM + "\n        with torch.no_grad():\n            self.inner = nn.Linear(2, 2)"),
    "apply of a function": (MODELING, "def rotate_half(x):", "def add_part(module):\n    module.part = nn.Linear(2, 2)\n\n\ndef rotate_half(x):"),
    "zip of names": (MODELING, NORM, NORM + '\n        for name, size in zip(("one", "two"), (2, 3)):\n            setattr(self, name + "_proj", nn.Linear(size, size))'),
    "percent in a name": (MODELING, NORM, NORM + '\n        for n in range(2):\n            setattr(self, "part_%d" % n, nn.Linear(2, 2))'),
    "format of a name": (MODELING, NORM, NORM + '\n        for n in range(2):\n            self.add_module("part_{}".format(n), nn.Linear(2, 2))'),
    "a decorator that adds": (MODELING, "class LlamaMLP(nn.Module):", "def with_more(cls):\n    made = cls.__init__\n\n    def init(self, *args, **kwargs):\n        made(self, *args, **kwargs)\n        self.more = nn.Linear(2, 2)\n\n    cls.__init__ = init\n    return cls\n\n\n@with_more\nclass LlamaMLP(nn.Module):"),
    "a set of names": (MODELING, NORM, _after(NORM, 'for name in sorted({"b", "a"}):', "    self.add_module(name, nn.Linear(2, 2))")),
    "names by a product": (MODELING, NORM, _after(NORM, "import itertools", 'for one, other in itertools.product("ab", "cd"):', "    setattr(self, one + other, nn.Linear(2, 2))")),
    "names by enumerate from one": (MODELING, NORM, _after(NORM, 'for n, name in enumerate(["a", "b"], 1):', '    setattr(self, f"{name}{n}", nn.Linear(2, 2))')),
    "names by items": (MODELING, NORM, _after(NORM, 'for name, size in {"a": 2, "b": 3}.items():', "    setattr(self, name, nn.Linear(size, size))")),
    "names reversed": (MODELING, NORM, _after(NORM, 'for name in reversed(("a", "b")):', "    setattr(self, name, nn.Linear(2, 2))")),
    "a name joined": (MODELING, NORM, _after(NORM, 'setattr(self, "_".join(["a", "b"]), nn.Linear(2, 2))')),
    "a name replaced": (MODELING, NORM, _after(NORM, 'setattr(self, "a-b".replace("-", "_"), nn.Linear(2, 2))')),
    "a name in upper case": (MODELING, NORM, _after(NORM, 'setattr(self, "abc".upper(), nn.Linear(2, 2))')),
    "a name sliced": (MODELING, NORM, _after(NORM, 'setattr(self, "abc"[1:], nn.Linear(2, 2))')),
    "a loop that goes on": (MODELING, NORM, _after(NORM, 'for name in ("a", "b", "c"):', '    if name == "b":', "        continue", "    setattr(self, name, nn.Linear(2, 2))")),
    "a loop that breaks": (MODELING, NORM, _after(NORM, 'for name in ("a", "b", "c"):', '    if name == "b":', "        break", "    setattr(self, name, nn.Linear(2, 2))")),
    "a nested dict of modules": (MODELING, NORM, _after(NORM, 'self.parts = nn.ModuleDict({"a": nn.ModuleDict({"b": nn.Linear(2, 2)})})')),
    "a module dict popped": (MODELING, NORM, _after(NORM, 'self.parts = nn.ModuleDict({"a": nn.Linear(2, 2), "b": nn.Linear(2, 2)})', 'self.parts.pop("a")')),
    "a module dict without an entry": (MODELING, NORM, _after(NORM, 'self.parts = nn.ModuleDict({"a": nn.Linear(2, 2), "b": nn.Linear(2, 2)})', 'del self.parts["a"]')),
    "a module dict cleared": (MODELING, NORM, _after(NORM, 'self.parts = nn.ModuleDict({"a": nn.Linear(2, 2)})', "self.parts.clear()")),
    "a module dict by dict()": (MODELING, NORM, _after(NORM, "self.parts = nn.ModuleDict(dict(a=nn.Linear(2, 2)))")),
    "a module dict by pairs": (MODELING, NORM, _after(NORM, 'self.parts = nn.ModuleDict([("a", nn.Linear(2, 2))])')),
    "a parameter dict that grows": (MODELING, NORM, _after(NORM, "self.parts = nn.ParameterDict()", 'self.parts["a"] = nn.Parameter(torch.ones(2))')),
    "a parameter list that grows": (MODELING, NORM, _after(NORM, "self.parts = nn.ParameterList()", "self.parts.append(nn.Parameter(torch.ones(2)))")),
    "a list popped": (MODELING, NORM, _after(NORM, "self.parts = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2)])", "self.parts.pop(0)")),
    "a slice of a list": (MODELING, NORM, _after(NORM, "self.parts = nn.ModuleList([nn.Linear(2, 2), nn.LayerNorm(2)])[1:]")),
    "a sum of lists": (MODELING, NORM, _after(NORM, "self.parts = nn.ModuleList([nn.ReLU()]) + nn.ModuleList([nn.Linear(2, 2)])")),
    "a sequential that is appended to": (MODELING, NORM, _after(NORM, "self.parts = nn.Sequential(nn.ReLU())", "self.parts.append(nn.Linear(2, 2))")),
    "a sequential with a named module": (MODELING, NORM, _after(NORM, "self.parts = nn.Sequential()", 'self.parts.add_module("a", nn.Linear(2, 2))')),
    "a star in a sequential": (MODELING, NORM, _after(NORM, "parts = [nn.Linear(2, 2) for _ in range(2)]", "self.parts = nn.Sequential(*parts, nn.LayerNorm(2))")),
    "register_module": (MODELING, NORM, _after(NORM, 'self.register_module("a", nn.Linear(2, 2))')),
    "a buffer that is not kept": (MODELING, NORM, _after(NORM, 'self.register_buffer("a", torch.zeros(2), persistent=False)')),
    "a buffer made persistent by position": (MODELING, NORM, _after(NORM, 'self.register_buffer("a", torch.zeros(2), False)')),
    "a buffer that is None": (MODELING, NORM, _after(NORM, 'self.register_buffer("a", None)')),
    "a buffer that is filled": (MODELING, NORM, _after(NORM, 'self.register_buffer("a", None)', "self.a = torch.zeros(2)")),
    "a parameter that is None": (MODELING, NORM, _after(NORM, "self.a = nn.Parameter(torch.ones(2))", "self.a = None")),
    "a plain tensor": (MODELING, NORM, _after(NORM, "self.a = torch.zeros(2)")),
    "a layer by a setting that is None": (MODELING, NORM, _after(NORM, "if config.head_dim is None:", "    self.a = nn.Linear(2, 2)")),
    "a layer by a number that is not zero": (MODELING, NORM, _after(NORM, "if config.pretraining_tp:", "    self.a = nn.Linear(2, 2)")),
    "a layer by a chain of comparisons": (MODELING, NORM, _after(NORM, "if 0 < config.num_hidden_layers <= 64:", "    self.a = nn.Linear(2, 2)")),
    "a layer by any": (MODELING, NORM, _after(NORM, "if any(n > 30 for n in range(config.num_hidden_layers)):", "    self.a = nn.Linear(2, 2)")),
    "a layer by isinstance": (MODELING, NORM, _after(NORM, "if isinstance(config.hidden_act, str):", "    self.a = nn.Linear(2, 2)")),
    "a layer by a private function": (MODELING, TOP, "def _make_norm(config):\n    if config.mlp_bias:\n        return nn.LayerNorm(2)\n    return nn.Identity()\n\n\n" + TOP),
    "a tied weight of a parameter": (MODELING, HEAD, _after(HEAD, "self.a = nn.Parameter(torch.ones(2))", "self.b = self.a")),
    "a bias taken away": (MODELING, HEAD, _after(HEAD.replace("bias=False", "bias=True"), "self.lm_head.bias = None")),
    "keys to ignore": (MODELING, PRE, PRE + '    _keys_to_ignore_on_load_missing = ["lm_head"]\n'),
    "a mixin behind": (MODELING, MLP, "class Scaled:\n    def __init__(self, *args, **kwargs):\n        super().__init__(*args, **kwargs)\n        self.scale = nn.Parameter(torch.ones(2))\n\n\nclass LlamaMLP(nn.Module, Scaled):\n    def __init__(self, config):\n        super().__init__()"),
    "an init of a base by its name": (MODELING, MLP, "class Scaled(nn.Module):\n    def __init__(self):\n        nn.Module.__init__(self)\n        self.scale = nn.Parameter(torch.ones(2))\n\n\nclass LlamaMLP(Scaled):\n    def __init__(self, config):\n        Scaled.__init__(self)"),
    "super with arguments": (MODELING, MLP, MLP.replace("super().__init__()", "super(LlamaMLP, self).__init__()\n        self.scale = nn.Parameter(torch.ones(2))")),
    "a class that is imported under another name": (MODELING, TOP, "from ..mistral.modeling_mistral import MistralForTokenClassification as Other\n\n\n" + TOP),
    "a class re-exported from another module": (MODELING, TOK, "from ..mistral.modeling_mistral import MistralForTokenClassification as LlamaForTokenClassification"),
    "a base of another module": (MODELING, TOK, "from ..mistral.modeling_mistral import MistralForCausalLM\n\n\nclass LlamaForTokenClassification(MistralForCausalLM): ..."),
    "a class made by type": (MODELING, TOK, 'LlamaForTokenClassification = type("LlamaForTokenClassification", (LlamaForCausalLM,), {})'),
    "a class of a condition": (MODELING, TOK, "if True:\n    class LlamaForTokenClassification(LlamaForCausalLM): ...\nelse:\n    class LlamaForTokenClassification(LlamaPreTrainedModel): ..."),
    "a class of a function": (MODELING, TOK, "def _made():\n    class LlamaForTokenClassification(LlamaForCausalLM): ...\n    return LlamaForTokenClassification\n\n\nLlamaForTokenClassification = _made()"),
    "a class with a metaclass": (MODELING, TOK, "class Meta(type):\n    def __call__(cls, *args, **kwargs):\n        made = super().__call__(*args, **kwargs)\n        made.more = nn.Linear(2, 2)\n        return made\n\n\nclass LlamaForTokenClassification(GenericForTokenClassification, LlamaPreTrainedModel, metaclass=Meta): ..."),
    "a __new__": (MODELING, MLP, MLP.replace("    def __init__", "    def __new__(cls, config):\n        return nn.Linear(2, 2)\n\n    def __init__")),
    "a __setattr__": (MODELING, MLP, MLP.replace("    def __init__", "    def __setattr__(self, name, value):\n        super().__setattr__(name.replace('gate', 'door'), value)\n\n    def __init__")),
    "an __init_subclass__": (MODELING, MLP, "class Named(nn.Module):\n    def __init_subclass__(cls):\n        cls.extra_size = 2\n\n\nclass LlamaMLP(Named):\n    def __init__(self, config):\n        super().__init__()\n        if hasattr(self, 'extra_size'):\n            self.extra = nn.Linear(2, 2)"),
    "a shape by a tuple": (MODELING, RMS, "self.weight = nn.Parameter(torch.ones((hidden_size, 1)[:1]))"),
    "a parameter by another maker": (MODELING, RMS, "self.weight = nn.Parameter(torch.empty(hidden_size).fill_(1.0))"),
    "a parameter with another name": (MODELING, RMS, RMS.replace("weight", "gain")),
    "a function turned into a method": (MODELING, "    def extra_repr(self):", "    @staticmethod\n    def scaled(x, by=2):\n        return x * by\n\n    def extra_repr(self):"),
    "a static method of a model": (MODELING, "class LlamaForCausalLM(LlamaPreTrainedModel, GenerationMixin):\n", "class LlamaForCausalLM(LlamaPreTrainedModel, GenerationMixin):\n    @staticmethod\n    def scaled(x, by=2):\n        return x * by\n\n"),
    "a method that is another one's name": (MODELING, "class LlamaForCausalLM(LlamaPreTrainedModel, GenerationMixin):\n", "class LlamaForCausalLM(LlamaPreTrainedModel, GenerationMixin):\n    def scaled(self, x, by=2):\n        return x * by\n\n    also_scaled = scaled\n"),
    "keyword only with defaults": (MODELING, LOGITS, "*,\n        " + LOGITS),
    "a positional only parameter": (MODELING, "input_ids: torch.LongTensor | None = None,\n        attention_mask", "input_ids: torch.LongTensor | None = None,\n        /,\n        attention_mask"),
    "a default that is negative": (MODELING, LOGITS, "logits_to_keep: int | torch.Tensor = -0"),
    "a default by a class": (MODELING, LOGITS, "logits_to_keep: int | torch.Tensor = int()"),
    "a setting by a list factory": (CONFIGURATION, TP, TP + "    steps: list = __import__('dataclasses').field(default_factory=list)\n"),
    "a property turned into a field": (CONFIGURATION, TP, TP + "    width: int = 8\n"),
    "a field turned into a property": (CONFIGURATION, TP, "    @property\n    def pretraining_tp(self):\n        return 1\n\n"),
    "a class variable of a configuration": (CONFIGURATION, TP, TP + "    from typing import ClassVar\n    steps: ClassVar[int] = 3\n"),
    "a setting without annotation": (CONFIGURATION, TP, TP + "    steps = 3\n"),
    "a setting moved into __post_init__": (CONFIGURATION, TP, "    pretraining_tp: int | None = None\n"),
    "a setting of a union of numbers": (CONFIGURATION, COUNT, "num_hidden_layers: int = 8 | 24"),
    "a setting by a shift": (CONFIGURATION, COUNT, "num_hidden_layers: int = 1 << 5"),
    "a setting by a call": (CONFIGURATION, COUNT, "num_hidden_layers: int = max(32, 4)"),
    "a setting deleted in __post_init__": (CONFIGURATION, POST, POST + "\n        del self.pretraining_tp"),
    "layers by a setting's list": (MODELING, LAYERS, '[LlamaDecoderLayer(config, n) for n, kind in enumerate(getattr(config, "layer_types", None) or ["full"]) if kind == "full"]'),
    "no layers": (MODELING, LAYERS, "[LlamaDecoderLayer(config, n) for n in range(config.num_hidden_layers - 32)]"),
    "a layer of a deleted class": (MODELING, "self.mlp = LlamaMLP(config)", "self.mlp = nn.Sequential(LlamaMLP(config))"),
    "a nested function with a default": (MODELING, GATE, "def made(size=self.hidden_size): return nn.Linear(size, 2)\n        self.gate_proj = made()"),
    "a chained assignment": (MODELING, GATE, "self.gate_proj = self.gate2_proj = nn.Linear(self.hidden_size, self.intermediate_size)"),
    "a tuple swap": (MODELING, GATE, _after(GATE, "self.x_proj, self.y_proj = nn.Linear(2, 2), nn.Linear(2, 3)","self.x_proj, self.y_proj = self.y_proj, self.x_proj","self.x_proj.bias = None")),
    "a try that fails": (MODELING, GATE, _after(GATE, "try:","    self.t_proj = nn.Linear(2, 2)","    raise ValueError","except ValueError:","    self.u_proj = nn.Linear(2, 2)","finally:","    self.v_proj = nn.Linear(2, 2)")),
    "an early return": (MODELING, GATE, _after("if config.mlp_bias is False:","    self.e_proj = nn.Linear(2, 2)","    return",GATE)),
    "getattr with a default": (MODELING, GATE, _after(GATE, "if getattr(config, 'no_such_thing', True): self.q2 = nn.Linear(2, 2)")),
    "add_module by a f name": (MODELING, GATE, _after(GATE, "for i in range(2): self.add_module(f'p{i}', nn.Linear(2, 2))")),
    "setattr by name": (MODELING, GATE, _after(GATE, "for n in 'ab': setattr(self, n + '_proj', nn.Linear(2, 2))")),
    "delattr by name": (MODELING, GATE, _after(GATE, "self.z_proj = nn.Linear(2, 2)","delattr(self, 'z_proj')")),
    "isinstance of a layer": (MODELING, GATE, _after(GATE, "if isinstance(self.gate_proj, nn.Linear): self.i_proj = nn.Linear(2, 2)")),
    "a conditional class": (MODELING, GATE, _after(GATE, "self.c_proj = (nn.Embedding if config.hidden_size else nn.Linear)(2, 2)")),
    "an identity": (MODELING, NORM, "self.norm = nn.Identity()"),
    "dropout in sequential": (MODELING, GATE, "self.gate_proj = nn.Sequential(nn.Dropout(0.1), nn.Linear(self.hidden_size, self.intermediate_size, bias=False), nn.ReLU(), nn.LayerNorm(2, elementwise_affine=False))"),
    "a batch norm": (MODELING, GATE, _after(GATE, "self.bn = nn.BatchNorm1d(4, affine=False)", "self.gn = nn.GroupNorm(2, 4)", "self.bn2 = nn.BatchNorm1d(4, track_running_stats=False)")),
    "an attention of torch": (MODELING, GATE, _after(GATE, "self.mha = nn.MultiheadAttention(4, 2, kdim=3, vdim=3, add_bias_kv=True)")),
    "an lstm": (MODELING, GATE, _after(GATE, "self.rnn = nn.LSTM(2, 3, num_layers=2, bidirectional=True, proj_size=1)")),
    "a transformer of torch": (MODELING, GATE, _after(GATE, "self.tr = nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 8), 2)")),
    "prelu and bilinear": (MODELING, GATE, _after(GATE, "self.pr = nn.PReLU(3)","self.bi = nn.Bilinear(2, 3, 4, bias=False)")),
    "layers by a step": (MODELING, LAYERS, "[LlamaDecoderLayer(config, i) for i in range(0, config.num_hidden_layers, 2)]"),
    "layers numbered down": (MODELING, LAYERS, "[LlamaDecoderLayer(config, i) for i in reversed(range(config.num_hidden_layers - 1))]"),
    "a head renamed": (MODELING, "self.lm_head", "self.head"),
    "a head with a bias": (MODELING, HEAD, HEAD.replace("bias=False","bias=config.attention_bias or True")),
    "requires_grad": (MODELING, GATE, _after(GATE, "self.gate_proj.requires_grad_(False)","self.gate_proj.weight.requires_grad = False")),
    "to and half": (MODELING, GATE, "self.gate_proj = nn.Linear(self.hidden_size, self.intermediate_size, bias=False).half().to('meta')"),
    "a prefix of the base": (MODELING, 'base_model_prefix = "model"', 'base_model_prefix = "backbone"'),
    "self.model renamed": (MODELING, "self.model", "self.backbone"),
    "a forward with a new order": (MODELING, LOGITS, "return_dict=None, "+LOGITS),
    "a static to a class method": (MODELING, "class LlamaModel(LlamaPreTrainedModel):\n", "class LlamaModel(LlamaPreTrainedModel):\n    @classmethod\n    def made(cls, size=2, *more, **rest): ...\n\n"),
    "a config None to number": (CONFIGURATION, "num_key_value_heads: int | None = None", "num_key_value_heads: int | None = 8"),
    "a config float": (CONFIGURATION, "rms_norm_eps: float = 1e-6", "rms_norm_eps: float = 1e-06"),
    "a config float other": (CONFIGURATION, "rms_norm_eps: float = 1e-6", "rms_norm_eps: float = 1e-5"),
    "a config order": (CONFIGURATION, "    "+COUNT+"\n", "    wide: int = 3\n    "+COUNT+"\n"),
    "fewer layers": (CONFIGURATION, COUNT, "num_hidden_layers: int = 0x10"),
    "a contextmanager": (MODELING, GATE, _after("import contextlib","with contextlib.suppress(KeyError):","    " + GATE,"    raise KeyError","    self.never = nn.Linear(2, 2)")),
    "a property as a module": (MODELING, MLP, MLP.replace("    def __init__","    @property\n    def hidden(self): return nn.Linear(2, 2)\n\n    def __init__")),
    "globals": (MODELING, GATE, _after(GATE, "self.gl = globals()['nn'].Linear(2, 2)")),
    "functools reduce": (MODELING, GATE, _after(GATE, "import functools","self.n = functools.reduce(lambda x, y: x + y, [1, 2])","self.rd = nn.ModuleList(nn.Linear(2, 2) for _ in range(self.n))")),
    "divmod": (MODELING, GATE, _after(GATE, "q, r = divmod(7, 2)","self.dm = nn.ModuleList(nn.Linear(2, 2) for _ in range(q + r))")),
    "a while with pop": (MODELING, GATE, _after(GATE, "rest = [1, 2, 3]","self.wl = nn.ModuleList()","while rest:","    self.wl.append(nn.Linear(rest.pop(), 2))")),
    "starred names": (MODELING, GATE, _after(GATE, "first, *others = (nn.Linear(2, 2) for _ in range(3))","self.st = nn.ModuleList(others)")),
    "or default": (MODELING, GATE, _after(GATE, "for n in range((config.hidden_size and 0) or 2): self.register_buffer(f'b{n}', torch.ones(1), n == 1)")),
    "bert: pooler by a helper method": (BERT, POOL, "        self._reset(config)\n        self.activation = nn.Tanh()\n\n    def _reset(self, config, *, width=None):\n        self.dense = nn.Linear(config.hidden_size, width or config.hidden_size)\n        if width is not None:\n            self.wide = nn.Linear(2, 2)"),
    "bert: layer shared by layers": (BERT, "self.layer = nn.ModuleList([BertLayer(config, layer_idx=i) for i in range(config.num_hidden_layers)])", "shared = BertLayer(config, layer_idx=0)\n        self.layer = nn.ModuleList([shared for _ in range(config.num_hidden_layers)])"),
    "bert: layer list by append": (BERT, "self.layer = nn.ModuleList([BertLayer(config, layer_idx=i) for i in range(config.num_hidden_layers)])", "self.layer = nn.ModuleList()\n        for i in range(config.num_hidden_layers):\n            self.layer.append(BertLayer(config, layer_idx=i))"),
    "bert: layer list from a plain list": (BERT, "self.layer = nn.ModuleList([BertLayer(config, layer_idx=i) for i in range(config.num_hidden_layers)])", "layers = []\n        for i in range(config.num_hidden_layers):\n            layers.append(BertLayer(config, layer_idx=i))\n        if config.is_decoder:\n            layers = layers[::2]\n        self.layer = nn.ModuleList(layers)"),
    "bert: layer list not registered": (BERT, "self.layer = nn.ModuleList([BertLayer(config, layer_idx=i) for i in range(config.num_hidden_layers)])", "self.layer = [BertLayer(config, layer_idx=i) for i in range(config.num_hidden_layers)]"),
    "bert: a frozen dataclass of sizes": (BERT, POOL, "        import dataclasses\n        @dataclasses.dataclass\n        class Sizes:\n            width: int = 3\n        sizes = Sizes(width=4)\n" + POOL + "\n        self.extra = nn.ModuleList([nn.Linear(2, 2) for _ in range(sizes.width)])"),
    "bert: a namedtuple of sizes": (BERT, POOL, "        from collections import namedtuple\n        Sizes = namedtuple('Sizes', 'count width')\n        sizes = Sizes(3, width=4)\n" + POOL + "\n        self.extra = nn.ModuleList([nn.Linear(2, 2) for _ in range(sizes.count)])"),
    "bert: buffers by nn.Buffer persistent": (BERT, "self.token_type_ids = nn.Buffer(torch.zeros(self.position_ids.size(), dtype=torch.long), persistent=False)", "self.token_type_ids = nn.Buffer(torch.zeros(self.position_ids.size(), dtype=torch.long), persistent=config.type_vocab_size > 1)"),
    "bert: embeddings by sum of settings": (BERT, "self.token_type_embeddings = nn.Embedding(config.type_vocab_size, config.hidden_size)", "if config.type_vocab_size:\n            self.token_type_embeddings = nn.Embedding(config.type_vocab_size, config.hidden_size)\n        else:\n            self.register_parameter('token_type_embeddings', None)"),
    "bert: crossattention switched": (BERT_CONFIG, "    add_cross_attention: bool = False", "    add_cross_attention: bool = True\n    is_decoder_first: bool = True"),
    "bert: is_decoder default true": (BERT_CONFIG, "    is_decoder: bool = False", "    is_decoder: bool = True"),
    "bert: number of labels by a property": (BERT, "self.classifier = nn.Linear(config.hidden_size, config.num_labels)", "labels = len(config.id2label)\n        self.classifier = nn.ModuleList(nn.Linear(config.hidden_size, 1) for _ in range(labels))"),
    "bert: classifier only for three labels": (BERT, "self.classifier = nn.Linear(config.hidden_size, config.num_labels)", "self.classifier = nn.Linear(config.hidden_size, config.num_labels) if config.num_labels != 2 else nn.Identity()"),
    "bert: super init of grandparent": (BERT, "class BertPooler(nn.Module):\n    def __init__(self, config):\n        super().__init__()", "class Base0(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.base0 = nn.Linear(2, 2)\n\n\nclass Base1(Base0):\n    def __init__(self):\n        super().__init__()\n        self.base1 = nn.Linear(2, 2)\n\n\nclass BertPooler(Base1):\n    def __init__(self, config):\n        super(Base1, self).__init__()"),
    "bert: super init twice": (BERT, "class BertPooler(nn.Module):\n    def __init__(self, config):\n        super().__init__()", "class BertPooler(nn.Module):\n    def __init__(self, config):\n        super().__init__()\n        self.before = nn.Linear(2, 2)\n        super().__init__()"),
    "bert: a decorator of init": (BERT, "class BertPooler(nn.Module):\n    def __init__(self, config):\n", "def adds(init):\n    def made(self, config):\n        init(self, config)\n        self.added = nn.Linear(2, 2)\n    return made\n\n\nclass BertPooler(nn.Module):\n    @adds\n    def __init__(self, config):\n"),
    "bert: a class decorator": (BERT, "class BertPooler(nn.Module):\n    def __init__(self, config):\n", "def without(cls):\n    old = cls.__init__\n    def __init__(self, config):\n        old(self, config)\n        del self.dense\n    cls.__init__ = __init__\n    return cls\n\n\n@without\nclass BertPooler(nn.Module):\n    def __init__(self, config):\n"),
    "bert: init assigned later": (BERT, "class BertPredictionHeadTransform(nn.Module):", "def _pool_init(self, config):\n    nn.Module.__init__(self)\n    self.other = nn.Linear(2, 2)\n\n\nBertPooler.__init__ = _pool_init\n\n\nclass BertPredictionHeadTransform(nn.Module):"),
    "bert: attribute set on the class later": (BERT, "class BertPredictionHeadTransform(nn.Module):", "BertPooler.size = 3\n\n\nclass BertPredictionHeadTransform(nn.Module):"),
    "bert: pooler by a flag in kwargs": (BERT, "self.bert = BertModel(config, add_pooling_layer=False)", "self.bert = BertModel(config, **{'add_pooling_layer': config.hidden_size > 3})"),
    "bert: zip": (BERT, POOL, POOL + "\n        for name, size in zip(('u', 'v', 'w'), (1, 2)):\n            setattr(self, name, nn.Linear(size, size))"),
    "bert: sorted set": (BERT, POOL, POOL + "\n        for name in sorted({'u', 'v'} | {'w'}):\n            setattr(self, name, nn.Linear(1, 1))"),
    "bert: nested comprehension": (BERT, POOL, POOL + "\n        self.grid = nn.ModuleList([nn.ModuleList([nn.Linear(1, 1) for c in range(r)]) for r in range(3)])"),
    "bert: dict get": (BERT, POOL, POOL + "\n        kinds = {'gelu': nn.Linear}\n        self.got = kinds.get(config.hidden_act, nn.Identity)(2, 2)"),
    "bert: dict items": (BERT, POOL, POOL + "\n        for name, bias in {'p': True, 'q': False}.items():\n            self.add_module(name, nn.Linear(2, 2, bias=bias))"),
    "bert: string join": (BERT, POOL, POOL + "\n        setattr(self, '_'.join(('a', 'b')), nn.Linear(2, 2))"),
    "bert: percent format": (BERT, POOL, POOL + "\n        for n in range(2):\n            setattr(self, 'part%02d' % n, nn.Linear(2, 2))"),
    "bert: str format": (BERT, POOL, POOL + "\n        for n in range(2):\n            setattr(self, '{}_{n:03d}'.format('x', n=n), nn.Linear(2, 2))"),
    "bert: f-string with format": (BERT, POOL, POOL + "\n        for n in range(2):\n            setattr(self, f'x{n:>3}'.replace(' ', '0'), nn.Linear(2, 2))"),
    "bert: removed prefix": (BERT, POOL, POOL + "\n        setattr(self, 'bert_part'.removeprefix('bert_'), nn.Linear(2, 2))"),
    "bert: int of a division": (BERT, POOL, POOL + "\n        self.parts = nn.ModuleList(nn.Linear(1, 1) for _ in range(int(config.num_hidden_layers / 5)))"),
    "bert: math ceil": (BERT, POOL, "        import math\n" + POOL + "\n        self.parts = nn.ModuleList(nn.Linear(1, 1) for _ in range(math.ceil(config.num_hidden_layers / 5)))"),
    "bert: round and pow": (BERT, POOL, POOL + "\n        self.parts = nn.ModuleList(nn.Linear(1, 1) for _ in range(round(2.5) + pow(2, 1) - abs(-1)))"),
    "bert: sum of a generator": (BERT, POOL, POOL + "\n        self.parts = nn.ModuleList(nn.Linear(1, 1) for _ in range(sum(n for n in (1, 2))))"),
    "bert: a recursive function": (BERT, POOL, POOL + "\n        def nest(depth):\n            return nn.Sequential(nn.Linear(1, 1), nest(depth - 1)) if depth else nn.Linear(2, 2)\n        self.nested = nest(2)"),
    "bert: a generator function": (BERT, POOL, POOL + "\n        def parts():\n            yield nn.Linear(1, 1)\n            if config.is_decoder:\n                yield nn.Linear(1, 1)\n            yield nn.Linear(1, 1)\n        self.parts = nn.ModuleList(parts())"),
    "bert: a nested class": (BERT, POOL, "        class Inner(nn.Module):\n            def __init__(self):\n                super().__init__()\n                self.inside = nn.Linear(1, 1)\n\n        self.inner = Inner()\n" + POOL),
    "bert: apply with init": (BERT, POOL, POOL + "\n        self.apply(lambda module: module.register_buffer('mark', torch.zeros(1)))"),
    "bert: for children": (BERT, POOL, POOL + "\n        for child in list(self.children()):\n            child.register_parameter('scale', nn.Parameter(torch.ones(1)))"),
    "bert: for named_modules": (BERT, POOL, POOL + "\n        for name, module in list(self.named_modules()):\n            if isinstance(module, nn.Linear):\n                setattr(self, name + '_copy', nn.Linear(1, 1))"),
    "bert: a swapped layer in another class": (BERT, "self.pooler = BertPooler(config) if add_pooling_layer else None", "self.pooler = BertPooler(config) if add_pooling_layer else None\n        for layer in self.encoder.layer:\n            layer.output.LayerNorm = nn.RMSNorm(config.hidden_size)"),
    "bert: a replaced layer by index": (BERT, "self.pooler = BertPooler(config) if add_pooling_layer else None", "self.pooler = BertPooler(config) if add_pooling_layer else None\n        self.encoder.layer[-1] = nn.Identity()"),
    "bert: a slice deleted": (BERT, "self.pooler = BertPooler(config) if add_pooling_layer else None", "self.pooler = BertPooler(config) if add_pooling_layer else None\n        del self.encoder.layer[6:]"),
    "bert: a slice assigned": (BERT, "self.pooler = BertPooler(config) if add_pooling_layer else None", "self.pooler = BertPooler(config) if add_pooling_layer else None\n        self.encoder.layer = self.encoder.layer[:4]"),
    "bert: setitem of a nested attribute": (BERT, "self.pooler = BertPooler(config) if add_pooling_layer else None", "self.pooler = BertPooler(config) if add_pooling_layer else None\n        setattr(self.encoder, 'final', nn.LayerNorm(2))"),
    "bert: get_submodule": (BERT, "self.pooler = BertPooler(config) if add_pooling_layer else None", "self.pooler = BertPooler(config) if add_pooling_layer else None\n        self.get_submodule('encoder').final = nn.LayerNorm(2)"),
    "bert: config changed before use": (BERT, "self.encoder = BertEncoder(config)", "config.num_hidden_layers = 3\n        self.encoder = BertEncoder(config)"),
    "bert: config copied and changed": (BERT, "self.encoder = BertEncoder(config)", "import copy\n        config = copy.deepcopy(config)\n        config.num_hidden_layers = 3\n        self.encoder = BertEncoder(config)"),
    "bert: config changed by update": (BERT, "self.encoder = BertEncoder(config)", "config.update({'num_hidden_layers': 3})\n        self.encoder = BertEncoder(config)"),
    "bert: config setattr": (BERT, "self.encoder = BertEncoder(config)", "setattr(config, 'num_hidden_layers', 3)\n        self.encoder = BertEncoder(config)"),
    "bert: config from dict": (BERT, "self.encoder = BertEncoder(config)", "self.encoder = BertEncoder(type(config)(**{**config.to_dict(), 'num_hidden_layers': 3}))"),
    "bert: config hasattr": (BERT, POOL, POOL + "\n        if hasattr(config, 'hidden_size') and not hasattr(config, 'no_such'):\n            self.more = nn.Linear(1, 1)"),
    "bert: ternary chain": (BERT, POOL, POOL + "\n        self.more = nn.Linear(1, 1) if config.hidden_size < 10 else nn.LayerNorm(2) if config.hidden_act == 'gelu' else None"),
    "bert: assert": (BERT, POOL, POOL + "\n        assert config.hidden_size > 0, 'no'\n        self.more = nn.Linear(1, 1)"),
    "bert: raise in a branch": (BERT, POOL, POOL + "\n        if config.hidden_act not in ('gelu', 'relu'):\n            raise ValueError('no')\n        self.more = nn.Linear(1, 1)"),
    "bert: with torch.no_grad": (BERT, POOL, POOL + "\n        with torch.no_grad():\n            self.more = nn.Linear(1, 1)"),
    "bert: with device": (BERT, POOL, POOL + "\n        with torch.device('meta'):\n            self.more = nn.Parameter(torch.zeros(2))"),
    "bert: embedding bag": (BERT, POOL, POOL + "\n        self.more = nn.EmbeddingBag(3, 2)\n        self.act = nn.GLU()"),
    "bert: embedding from pretrained": (BERT, POOL, POOL + "\n        self.more = nn.Embedding.from_pretrained(torch.zeros(2, 3))"),
    "bert: spectral norm": (BERT, POOL, POOL + "\n        self.more = torch.nn.utils.spectral_norm(nn.Linear(2, 2))"),
    "bert: batch norm affine": (BERT, POOL, POOL + "\n        self.more = nn.BatchNorm2d(4, track_running_stats=False)\n        self.other = nn.InstanceNorm1d(4, affine=True)"),
    "t5: gated by an import": (T5, "self.dropout = nn.Dropout(config.classifier_dropout)\n        self.classifier", "from torch.nn import Linear as Lin\n        self.lin = Lin(1, 1)\n        self.dropout = nn.Dropout(config.classifier_dropout)\n        self.classifier"),
    "t5: relative bias everywhere": (T5, "if self.has_relative_attention_bias:\n            self.relative_attention_bias", "if True:\n            self.relative_attention_bias"),
    "t5: block without cross attention": (T5, "if self.is_decoder:\n            self.layer.append(T5LayerCrossAttention", "if False:\n            self.layer.append(T5LayerCrossAttention"),
    "t5: lm_head gone": (T5, "        self.lm_head = nn.Linear(config.d_model, config.vocab_size, bias=False)\n", ""),
    "t5: default act": (T5_CONFIG, 'feed_forward_proj: str = "relu"', 'feed_forward_proj: str = "gated-gelu"'),
    "t5: fewer decoder layers": (T5_CONFIG, "num_decoder_layers: int | None = None", "num_decoder_layers: int | None = 2"),
    "t5: model type": (T5_CONFIG, 'model_type = "t5"', 'model_type = "t5x"'),
    "vit: mask token": (VIT, "def __init__(self, config: ViTConfig, use_mask_token: bool = False)", "def __init__(self, config: ViTConfig, use_mask_token: bool = True)"),
    "vit: no bias": (VIT_CONFIG, "qkv_bias: bool = True", "qkv_bias: bool = False"),
    "vit: decoder by star": (VIT, "nn.PixelShuffle(config.encoder_stride),", "nn.PixelShuffle(config.encoder_stride),\n            *[nn.Linear(1, 1)] * 2,"),
    "vit: position embeddings buffer": (VIT, "self.position_embeddings = nn.Parameter(torch.randn(1, num_patches + 1, config.hidden_size))", "self.register_buffer('position_embeddings', torch.zeros(1, num_patches + 1, config.hidden_size))"),
    "vit: labels zero": (VIT, "if config.num_labels > 0 else nn.Identity()", "if config.num_labels > 5 else nn.Identity()"),
    "mamba: D": (MAMBA, "self.D = nn.Parameter(torch.empty(self.intermediate_size))", "self.D = torch.nn.parameter.Parameter(torch.empty(self.intermediate_size), requires_grad=False)"),
    "mamba: D none": (MAMBA, "self.D = nn.Parameter(torch.empty(self.intermediate_size))", "self.D = None"),
    "clip: scale": (CLIP, "self.logit_scale = nn.Parameter(torch.tensor(self.config.logit_scale_init_value))", "self.logit_scale = torch.tensor(self.config.logit_scale_init_value)"),
    "clip: towers renamed": (CLIP, "self.vision_model = ", "self.visual = self.vision_model = "),
    "clip: text by another class": (CLIP, "self.final_layer_norm = nn.LayerNorm(embed_dim, eps=config.layer_norm_eps)", "self.final_layer_norm = nn.LayerNorm(embed_dim, eps=config.layer_norm_eps, elementwise_affine=False)"),
    "clip: text config default": (CLIP_CONFIG, "max_position_embeddings: int = 77", "max_position_embeddings: int = 78"),
    "mixtral: experts as lists": (MIXTRAL, "self.down_proj = nn.Parameter(torch.empty(self.num_experts, self.hidden_dim, self.intermediate_dim))", "self.down_proj = nn.ParameterList(nn.Parameter(torch.empty(self.hidden_dim, self.intermediate_dim)) for _ in range(self.num_experts))"),
    "mixtral: experts inherit": (MIXTRAL, "class MixtralExperts(nn.Module):", "class MixtralExperts(nn.ModuleList):"),
    "mixtral: experts as a module list of itself": (MIXTRAL, "        self.gate = MixtralTopKRouter(config)\n        self.experts = MixtralExperts(config)", "        self.gate = MixtralTopKRouter(config)\n        self.experts = nn.ModuleList()\n        for index in range(config.num_local_experts):\n            self.experts.add_module(f'expert_{index}', MixtralRMSNorm(2))"),
    "mixtral: fewer experts": (MIXTRAL_CONFIG, "num_local_experts: int = 8", "num_local_experts: int = 4"),
    "mixtral: router bias": (MIXTRAL, "self.weight = nn.Parameter(torch.empty(self.num_experts, self.hidden_dim))", "self.weight = nn.Parameter(torch.empty(self.num_experts, self.hidden_dim))\n        self.e_score_correction_bias = nn.Buffer(torch.zeros(self.num_experts))"),
    "llama: forward kwargs gone": (MODELING, "        **kwargs: Unpack[TransformersKwargs],\n    ) -> CausalLMOutputWithPast:", "    ) -> CausalLMOutputWithPast:"),
    "llama: new required": (MODELING, "input_ids: torch.LongTensor | None = None,\n", "input_ids: torch.LongTensor,\n"),
    "llama: forward decorated by a wrapper": (MODELING, "    @can_return_tuple\n    @auto_docstring\n    def forward(", "    @can_return_tuple\n    def forward("),
    "llama: labels renamed": (MODELING, "labels: torch.LongTensor | None = None", "targets: torch.LongTensor | None = None"),
    "llama: method made private": (MODELING, "    def forward(\n", "    def _forward(\n"),
    "llama: method alias": (MODELING, "class LlamaForCausalLM(LlamaPreTrainedModel, GenerationMixin):\n", "class LlamaForCausalLM(LlamaPreTrainedModel, GenerationMixin):\n    def score(self, x, *, deep=False):\n        return x\n\n    rate = score\n"),
    "llama: property": (MODELING, "class LlamaForCausalLM(LlamaPreTrainedModel, GenerationMixin):\n", "class LlamaForCausalLM(LlamaPreTrainedModel, GenerationMixin):\n    @property\n    def width(self):\n        return 3\n"),
    "llama: method under a condition": (MODELING, "class LlamaForCausalLM(LlamaPreTrainedModel, GenerationMixin):\n", "class LlamaForCausalLM(LlamaPreTrainedModel, GenerationMixin):\n    if True:\n        def score(self, x):\n            return x\n"),
    "llama: method in a try": (MODELING, "class LlamaForCausalLM(LlamaPreTrainedModel, GenerationMixin):\n", "class LlamaForCausalLM(LlamaPreTrainedModel, GenerationMixin):\n    try:\n        def score(self, x):\n            return x\n    except NameError:\n        pass\n"),
    "llama: method deleted": (MODELING, "class LlamaForCausalLM(LlamaPreTrainedModel, GenerationMixin):\n", "class LlamaForCausalLM(LlamaPreTrainedModel, GenerationMixin):\n    def score(self, x):\n        return x\n\n    other = score\n    del score\n"),
    "llama: method set below": (MODELING, "__all__ = [", "def _score(self, x, by=2):\n    return x\n\n\nLlamaForCausalLM.score = _score\n\n__all__ = ["),
    "llama: method by setattr below": (MODELING, "__all__ = [", "for _name in ('one', 'two'):\n    setattr(LlamaForCausalLM, _name, lambda self, x=1: x)\n\n__all__ = ["),
    "llama: async method": (MODELING, "class LlamaForCausalLM(LlamaPreTrainedModel, GenerationMixin):\n", "class LlamaForCausalLM(LlamaPreTrainedModel, GenerationMixin):\n    async def score(self, x, *rest, y=1, **more):\n        return x\n"),
    "llama: default a lambda": (MODELING, LOGITS, "logits_to_keep: int | torch.Tensor = 0, act=lambda x: x"),
    "llama: default a tuple": (MODELING, LOGITS, "logits_to_keep: int | torch.Tensor = 0, pair=(1, 2)"),
    "llama: default a dtype": (MODELING, LOGITS, "logits_to_keep: int | torch.Tensor = 0, kind=torch.float32"),
    "llama: default by a class variable": (MODELING, "class LlamaForCausalLM(LlamaPreTrainedModel, GenerationMixin):\n", "class LlamaForCausalLM(LlamaPreTrainedModel, GenerationMixin):\n    STEP = 3\n\n    def score(self, x, by=STEP):\n        return x\n"),
    "llama: default minus": (MODELING, LOGITS, "logits_to_keep: int | torch.Tensor = -1"),
    "llama: default true to one": (MODELING, LOGITS, "logits_to_keep: int | torch.Tensor = False"),
    "llama: generic mixin swapped": (MODELING, "class LlamaForTokenClassification(GenericForTokenClassification, LlamaPreTrainedModel): ...", "class LlamaForTokenClassification(GenericForSequenceClassification, LlamaPreTrainedModel): ..."),
    "llama: base order": (MODELING, "class LlamaForTokenClassification(GenericForTokenClassification, LlamaPreTrainedModel): ...", "class LlamaForTokenClassification(LlamaForCausalLM): ..."),
    "llama: two heads": (MODELING, HEAD, HEAD + "\n        self.value_head = nn.Sequential(nn.Linear(config.hidden_size, 1), nn.Tanh())"),
    "llama: head by config": (MODELING, HEAD, "if config.tie_word_embeddings:\n            self.lm_head = None\n        else:\n            " + HEAD),
    "llama: head only when not tied": (MODELING, HEAD, "if not config.tie_word_embeddings:\n            " + HEAD),
    "llama: rope as buffers": (MODELING, ROTARY, ROTARY + "\n        self.register_buffer('cos_cached', torch.ones(3), persistent=False)\n        self.register_buffer('sin_cached', torch.ones(3))"),
    "llama: qk norm": (MODELING, "self.o_proj = nn.Linear(", "self.q_norm = LlamaRMSNorm(self.head_dim, eps=config.rms_norm_eps)\n        self.k_norm = LlamaRMSNorm(self.head_dim, eps=config.rms_norm_eps)\n        self.o_proj = nn.Linear("),
    "llama: fused qkv": (MODELING, "self.k_proj = nn.Linear(", "self.qkv_proj = nn.Linear(4, 4)\n        self._k_proj = nn.Linear("),
    "llama: sliding layers": (MODELING, "self.mlp = LlamaMLP(config)", "self.is_sliding = bool((layer_idx + 1) % 2)\n        self.mlp = LlamaMLP(config)\n        if self.is_sliding:\n            self.window_norm = LlamaRMSNorm(config.hidden_size)"),
    "llama: moe every second": (MODELING, "self.mlp = LlamaMLP(config)", "self.mlp = LlamaMLP(config) if layer_idx % 2 else nn.ModuleList([LlamaMLP(config) for _ in range(4)])"),
    "llama: first dense": (MODELING, "self.mlp = LlamaMLP(config)", "if layer_idx >= config.num_hidden_layers - 1:\n            self.mlp = LlamaMLP(config)\n        else:\n            self.feed_forward = LlamaMLP(config)"),
    "llama: mlp with shared": (MODELING, "self.mlp = LlamaMLP(config)", "self.mlp = LlamaMLP(config)\n        self.shared_mlp = self.mlp"),
    "whisper: encoder renamed conv": (WHISPER, "self.conv1 = nn.Conv1d(", "self.conv_in = nn.Conv1d("),
    "whisper: positions a parameter": (WHISPER, "self.embed_positions = nn.Embedding(self.max_source_positions, embed_dim)", "self.embed_positions = nn.Parameter(torch.zeros(self.max_source_positions, embed_dim))"),
    "whisper: k bias": (WHISPER, "self.k_proj = nn.Linear(embed_dim, embed_dim, bias=False)", "self.k_proj = nn.Linear(embed_dim, embed_dim, bias=bias)"),
    "whisper: fewer decoder layers": (WHISPER_CONFIG, "decoder_layers: int = 4", "decoder_layers: int = 3"),
    "whisper: attention map": (WHISPER_CONFIG, '"num_attention_heads": "encoder_attention_heads"', '"num_attention_heads": "decoder_attention_heads"'),
    "gpt2: conv1d to linear": (GPT2, "self.c_attn = Conv1D(3 * self.embed_dim, self.embed_dim)", "self.c_attn = nn.Linear(self.embed_dim, 3 * self.embed_dim)"),
    "gpt2: cross attention": (GPT2_CONFIG, "add_cross_attention: bool = False", "add_cross_attention: bool = True"),
    "gpt2: bias buffer": (GPT2, "self.c_attn = Conv1D(3 * self.embed_dim, self.embed_dim)", "self.register_buffer('bias', torch.tril(torch.ones((2, 2))))\n            self.c_attn = Conv1D(3 * self.embed_dim, self.embed_dim)"),
    "gemma2: norm renamed": (GEMMA2, "self.pre_feedforward_layernorm", "self.pre_ff_layernorm"),
    "gemma2: softcap layer": (GEMMA2, "self.post_feedforward_layernorm = ", "self.softcap = nn.Tanh()\n        self.post_feedforward_layernorm = "),
    "llava: projector": (LLAVA, "self.linear_2 = nn.Linear(", "self.norm = nn.LayerNorm(config.text_config.hidden_size)\n        self.linear_2 = nn.Linear("),
    "llava: tower renamed": (LLAVA, "self.vision_tower", "self.vision_model"),
    "llava: projector twice": (LLAVA, "self.multi_modal_projector = LlavaMultiModalProjector(config)", "self.multi_modal_projector = nn.ModuleList([LlavaMultiModalProjector(config), LlavaMultiModalProjector(config)])"),
    "wav2vec2: feature norm": (WAV2VEC2, "self.projection = nn.Linear(config.conv_dim[-1], config.hidden_size)", "self.projection = nn.Linear(config.conv_dim[-1], config.hidden_size)\n        self.convs = nn.ModuleList(nn.Conv1d(1, size, 1) for size in config.conv_dim)"),
    "wav2vec2: weight norm off": (WAV2VEC2, "weight_norm = nn.utils.weight_norm", "weight_norm = lambda module, **kwargs: module"),
    "qwen2_moe: shared expert": (QWEN2_MOE, "self.shared_expert_gate = torch.nn.Linear(config.hidden_size, 1, bias=False)", "self.shared_expert_gate = torch.nn.Linear(config.hidden_size, 1, bias=True)"),
    "qwen2_moe: sparse step": (QWEN2_MOE, "(layer_idx + 1) % config.decoder_sparse_step == 0", "(layer_idx + 1) % 2 == 0"),
    "sam: neck": (SAM, "self.layer_norm2 = SamLayerNorm(", "self.layer_norm3 = SamLayerNorm("),
    "sam: no rel pos": (SAM, "if self.use_rel_pos:", "if False:"),
    "bert: config nested dict": (BERT_CONFIG, "    add_cross_attention: bool = False", "    add_cross_attention: bool = False\n    task: dict | None = None"),
    "bert: config alias": (BERT_CONFIG, '    model_type = "bert"\n', '    model_type = "bert"\n    attribute_map = {"width": "hidden_size"}\n'),
    "bert: config init by hand": (BERT_CONFIG, "    add_cross_attention: bool = False", "    add_cross_attention: bool = False\n\n    def __post_init__(self, **kwargs):\n        self.head_dim = self.hidden_size // self.num_attention_heads\n        super().__post_init__(**kwargs)"),
    "bert: config default by another": (BERT_CONFIG, "intermediate_size: int = 3072", "intermediate_size: int | None = None"),
    "clip: sub config": (CLIP_CONFIG, "    vision_config: ", "    more_config: dict | None = None\n    vision_config: "),
}  # fmt: skip


class Found(NamedTuple):
    """What changes between two versions of a file: entries and signatures, by class."""

    changed: frozenset[str]
    doubtful: frozenset[str] = frozenset()
    """Those of `changed` of which the texts are not certain."""


def main() -> None:
    """Try all edits; exits with 1 if one is told wrongly."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="only these edits")
    parser.add_argument("--update", action="store_true")
    given = parser.parse_args()
    make_quietly()
    outcomes: Counter[str] = Counter()
    for name in given.names or EDITS:
        file, old, new = EDITS[name]
        text = Path(MODELS, file).read_text(encoding="utf-8")
        assert old in text, name
        edited = text.replace(old, new)
        if "KEEP" in edited:
            edited = edited.replace("\n\n\n", "\n\n\nKEEP = 1\n\n\n", 1)
        outcome = judged(really(file, text, edited), told(file, edited))
        outcomes[outcome.partition(":")[0]] += 1
        print(f"{name}: {outcome}", flush=True)
    row = (sum(outcomes.values()), *(outcomes[one] for one in ("right", "unsure", "wrong")))
    table = "| edits | right | unsure, and said so | wrong |\n| ---: | ---: | ---: | ---: |\n"
    made = f"transformers {transformers.__version__}, torch {torch.__version__}, {datetime.date.today():%Y-%m-%d}"
    table += f"| {' | '.join(map(str, row))} |\n\n{made}\n"
    print(table)
    if given.update:
        write_part(PAGE, "adversary", table)
    sys.exit(outcomes["wrong"] > 0)


def make_quietly() -> None:
    """Let models be made without words and without values in their weights."""
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    transformers.PreTrainedModel.init_weights = lambda self: None


def judged(real: Found, told: Found) -> str:
    extra = told.changed - real.changed
    missed = {one for one in real.changed - told.changed if not _is_said_unknown(one, told)}
    if missed or extra - told.doubtful:
        return f"wrong: missed {sorted(missed)[:3]}, added {sorted(extra - told.doubtful)[:3]}"
    return "unsure" if extra else "right"


def _is_said_unknown(key: str, told: Found) -> bool:
    """Whether an entry lies in a part of which the texts say that it is not known."""
    if f"{key.partition(' ')[0]} ?" in told.doubtful:  # a class that can no longer be read
        return True
    parts = key.split(".")
    ends = [".".join([*parts[:number], end]) for number in range(1, len(parts)) for end in ("?", "*.?")]
    return not told.doubtful.isdisjoint([*ends, f"{key}.?", f"{key.partition(' ')[0]} *.?"])


def really(file: str, old: str, new: str) -> Found:
    before, after = _made_before(file, old), _made(file, new, "after")
    changed: set[str] = set()
    for name in before.keys() & after.keys():
        (states, methods), (new_states, new_methods) = before[name], after[name]
        changed |= {f"{name} {key}" for key in states ^ new_states}
        changed |= set(_signature_changes(name, methods, new_methods))
    return Found(frozenset(changed))


@functools.cache
def _made_before(file: str, text: str) -> dict[str, tuple[set[str], dict[str, dict[str, list[str]]]]]:
    return _made(file, text, "before")


def _made(file: str, text: str, suffix: str) -> dict[str, tuple[set[str], dict[str, dict[str, list[str]]]]]:
    """Class -> the entries of its state dict, and its signatures, of a text that is run in place of a file."""
    folder, stem = file.removesuffix(".py").split("/")
    package = f"transformers.models.{folder}"
    importlib.import_module(f"{package}.{stem}")
    module = types.ModuleType(f"{package}.{stem}_{suffix}")
    module.__file__, module.__package__ = os.path.join(MODELS, file), package
    sys.modules[module.__name__] = module
    exec(compile(text, module.__file__, "exec", dont_inherit=True), module.__dict__)
    made: dict[str, Any] = {}
    lazy = importlib.import_module(package)
    own = {name: getattr(lazy, name) for name in module.__all__}
    try:
        for name in module.__all__:
            setattr(lazy, name, getattr(module, name))  # where automatic classes look
        for name in module.__all__:
            cls = getattr(module, name)
            state = _built(cls, torch) if issubclass(cls, transformers.PreTrainedModel) else {}
            assert isinstance(state, dict), (name, state)
            made[name] = set(state), dict(_signatures(cls))
    finally:
        for name, one in own.items():
            setattr(lazy, name, one)
    return made


@functools.cache
def _told_before(model: str) -> dict[str, Any]:
    return _facts_of([model], tree_at(MODELS, profile_settings()), lambda done: None)[0]


def told(file: str, edited: str) -> Found:
    settings, path = profile_settings(), os.path.join(MODELS, file)
    model, stem = file.removesuffix(".py").split("/")
    before, after = (
        _told_before(model),
        _facts_of([model], tree_at(MODELS, settings, {path: edited}), lambda done: None)[0],
    )
    changed: set[str] = set()
    doubtful: set[str] = set()
    gone = {f"{one.rpartition('.')[2]} ?" for one in before["signatures"].keys() - after["signatures"].keys()}
    doubtful |= gone
    changed |= gone
    module = importlib.import_module(f"transformers.models.{model}.{stem}")
    for whole in before["signatures"].keys() & after["signatures"].keys():
        name = whole.rpartition(".")[2]
        if f".{stem}." not in whole:
            continue
        changed |= set(_signature_changes(name, before["signatures"][whole], after["signatures"][whole]))
        if not issubclass(getattr(module, name), transformers.PreTrainedModel):
            continue  # of which `really` makes no object
        moved = before["conditions"].get(whole, set()) ^ after["conditions"].get(whole, set())
        doubtful |= {f"{name} {beginning}.?" for beginning, _ in moved}
        states, new_states = (side["states"].get(whole, {}) for side in (before, after))
        for one, other in ((states, new_states), (new_states, states)):
            for key, is_certain in one.items():
                if key not in other or is_certain != other[key]:
                    changed.add(f"{name} {key}")
                    is_sure = is_certain and key not in other and not _is_unknown(key, other)
                    doubtful |= set() if is_sure else {f"{name} {key}"}
    return Found(frozenset(changed), frozenset(doubtful))


if __name__ == "__main__":
    main()
