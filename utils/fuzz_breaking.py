"""Random edits of published modeling files, told by `--breaking`, against classes that are really made:
`python utils/fuzz_breaking.py 120 --seed 1`.

Each edit exchanges one line `self.x = …` of an `__init__` for other lines. Old and new file are imported, and what changes in
state dicts and signatures is compared with what the texts tell, as `adversary_edits.py` does. `--update` puts the table into
docs/figures/change.md.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
import textwrap
from collections import Counter
from importlib.metadata import version
from pathlib import Path

from adversary_edits import MODELS, judged, make_quietly, really, told
from marked_pages import write_outcomes


PLAIN = "nn.Linear(2, 2)"
FORMS = {  # NAME = MADE becomes
    "in a sequence": "self.NAME = nn.Sequential(MADE)",
    "on a setting": "if getattr(config, 'use_cache', True):\n    self.NAME = MADE\nelse:\n    self.NAME = None",
    "on what is not known": "if len(str(config)) > 100:\n    self.NAME = MADE\nelse:\n    self.NAME = None",
    "names in a loop": "for name in ('NAME', 'NAME_twin'):\n    setattr(self, name, MADE)",
    "a function": "def made():\n    return MADE\n\nself.NAME = made()",
    "a list": f"self.NAME = nn.ModuleList([MADE, {PLAIN}])",
    "a dict": f"self.NAME = nn.ModuleDict({{'a': MADE, 'b': {PLAIN}}})",
    "two names": "self.NAME = self.NAME_alias = MADE",
    "a part of it": f"self.NAME = MADE\nself.NAME.extra = {PLAIN}",
    "deleted": "self.NAME = MADE\ndel self.NAME",
    "a buffer of it": "self.NAME = MADE\nself.NAME.register_buffer('mark', torch.zeros(1))",
    "add_module": "self.add_module('NAME', MADE)",
    "a lambda": "self.NAME = (lambda: MADE)()",
    "a tuple": f"self.NAME, self.NAME_other = MADE, {PLAIN}",
    "a try": "try:\n    self.NAME = MADE\nexcept TypeError:\n    self.NAME = None",
    "no_grad": "with torch.no_grad():\n    self.NAME = MADE",
    "copies": "import copy\nself.NAME = copy.deepcopy(MADE)\nself.NAME_two = copy.deepcopy(self.NAME)",
    "replaced": "self.NAME = MADE\nself.NAME = nn.Identity()",
    "a comprehension": "self.NAME = nn.ModuleList([MADE for _ in range(3)])",
    "a while": "self.NAME = nn.ModuleList()\nwhile len(self.NAME) < 2:\n    self.NAME.append(MADE)",
    "begun again": "nn.Module.__init__(self)\nself.NAME = MADE",
    "no module": f"self.NAME = MADE\nself.__dict__['hidden'] = {PLAIN}\nobject.__setattr__(self, 'hidden_too', {PLAIN})",
    "popped": "self.NAME = MADE\nself._modules.pop('NAME')",
    "frozen": "self.NAME = MADE\nfor p in self.NAME.parameters():\n    p.requires_grad = False",
    "another weight": "self.NAME = MADE\nself.NAME.weight = nn.Parameter(torch.zeros(3))",
    "setattr on it": f"self.NAME = MADE\nsetattr(self.NAME, 'more', {PLAIN})",
    "annotated": "self.NAME: nn.Module = MADE",
    "a local name": "made = MADE\nself.NAME = made\nself.NAME_again = made",
    "a walrus": "if (made := MADE) is not None:\n    self.NAME = made",
    "a match": "match config.model_type:\n    case 'none':\n        self.NAME = None\n    case _:\n        self.NAME = MADE",
    "apply": "self.NAME = MADE\nself.NAME.apply(lambda m: setattr(m, 'tag', nn.Parameter(torch.ones(1))))",
    "its parameters": "self.NAME = MADE\nfor k, _ in list(self.NAME.named_parameters()):\n    self.register_buffer('of_' + k.replace('.', '_'), torch.zeros(1))",
    "isinstance": f"self.NAME = MADE\nif isinstance(self.NAME, (nn.Linear, nn.LayerNorm)):\n    self.NAME_plain = {PLAIN}",
    "hasattr": f"self.NAME = MADE\nif hasattr(self.NAME, 'bias'):\n    self.NAME_biased = {PLAIN}",
    "no bias": "self.NAME = MADE\nif getattr(self.NAME, 'bias', None) is not None:\n    self.NAME.bias = None",
    "a list first": f"parts = [MADE]\nparts += [{PLAIN}]\nself.NAME = nn.Sequential(*parts)",
    "an or": "self.NAME = None or MADE",
    "gone": "pass",
    "None": "self.NAME = None",
    "a partial call": "import functools\nself.NAME = functools.partial(nn.Linear, 2)(3, bias=False)",
    "zip": "for name, part in zip(['NAME'], [MADE]):\n    setattr(self, name, part)",
    "a dict comprehension": "self.NAME = nn.ModuleDict({k: MADE for k in ('p', 'q')})",
    "an update": f"self.NAME = MADE\nself._modules.update(more={PLAIN})",
    "a star": f"first, *rest = [MADE, {PLAIN}, {PLAIN}]\nself.NAME = first\nself.NAME_rest = nn.ModuleList(rest)",
    "numbers": "self.NAME = MADE\nfor i, w in enumerate((1, 2)):\n    self.add_module(f'NAME_{i}', nn.Linear(w, w, bias=bool(i)))",
    "a filter": "self.NAME = nn.ModuleList([m for m in (None, MADE) if m is not None])",
    "by its path": f"self.NAME = MADE\nself.get_submodule('NAME').more = {PLAIN}",
    "for all children": "self.NAME = MADE\nfor part in self.children():\n    part.register_parameter('gain', nn.Parameter(torch.ones(1)))",
    "a generator": f"def parts():\n    yield MADE\n    yield {PLAIN}\n\nself.NAME = nn.ModuleList(parts())",
    "handed on": "self.NAME = MADE\nnn.init.zeros_(next(self.NAME.parameters(), torch.zeros(1)))",
}  # fmt: skip
LINE = re.compile(r"^( {8,12})self\.(\w+) = ((?:nn\.\w+|[A-Z]\w+)\(.*\))$", re.MULTILINE)
FAMILIES = (
    "albert bart bert blip bloom clip codegen cohere convnext deberta_v2 deepseek_v3 dinov2 distilbert electra falcon gemma2 "
    "gpt2 gpt_neox llama llava longformer mamba mistral mixtral mpnet olmo2 opt phi3 qwen2_moe qwen3 roberta sam segformer "
    "siglip squeezebert swin t5 vit wav2vec2 whisper"
)


def main() -> None:
    """Try random edits; exits with 1 if one is told wrongly."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("number", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--update", action="store_true")
    given = parser.parse_args()
    make_quietly()
    chance, outcomes = random.Random(given.seed), Counter[str]()
    while outcomes.total() < given.number:
        model = chance.choice(FAMILIES.split())
        file = f"{model}/modeling_{model}.py"
        text = Path(MODELS, file).read_text(encoding="utf-8")
        place, form = chance.choice([*LINE.finditer(text)]), chance.choice([*FORMS])
        lines = textwrap.indent(FORMS[form].replace("NAME", place[2]).replace("MADE", place[3]), place[1])
        edited = text[: place.start()] + lines + text[place.end() :]
        try:
            real = really(file, text, edited)
        except Exception:  # the edited model does not run
            continue
        outcome = judged(real, told(file, edited))
        outcomes[outcome.partition(":")[0]] += 1
        if outcome != "right":
            line = text.count("\n", 0, place.start()) + 1
            print(f"{file}:{line} {place[2]}, {form}: {outcome}", flush=True)
    print(", ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes.items())))
    if given.update:
        write_outcomes("random-edits", "edits", f"seed {given.seed}, transformers {version('transformers')}", outcomes)
    sys.exit(outcomes["wrong"] > 0)


if __name__ == "__main__":
    main()
