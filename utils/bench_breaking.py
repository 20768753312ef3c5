"""How long an edit of llama waits for `--breaking`: `python utils/bench_breaking.py --update`.

A copy of the installed transformers becomes a git tree with a cache of its own. `check-modular-conversion --breaking
--against HEAD` runs on it from an empty cache, then after each edit; before each of these it ran without one, as on a tree
whose last change has been looked at. With `--against` something else, such as `transformers==5.23.0`, each run compares with
that. Seconds of whole processes, by the clock and of the processor, children included, the median of `--runs`. `--update`
puts the table into docs/figures/change.md.
"""

from __future__ import annotations

import argparse
import datetime
import functools
import importlib.util
import os
import shutil
import statistics
import subprocess
import tempfile
from collections.abc import Callable
from importlib.metadata import version

from adversary_edits import CONFIGURATION, COUNT, MODELING, TOP
from bench_check import CHECK, measure
from bench_convert import keep_bytecode
from marked_pages import CHANGES, write_part


PRODUCT = "down_proj = self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))"
ROTARY = "def apply_rotary_pos_emb(q, k, cos, sin, unsqueeze_dim=1):"
ATTENTION = "**kwargs: Unpack[TransformersKwargs],\n    ) -> tuple[torch.Tensor, torch.Tensor]:"
EDITS = {  # each run makes another one: what follows from the same edit is remembered
    "none": (MODELING, "", ""),
    "a comment above a class": (MODELING, TOP, f"# Comment NUMBER.\n{TOP}"),
    "a line in `LlamaMLP.forward`": (MODELING, PRODUCT, f"{PRODUCT} * 1.NUMBER"),
    "a parameter for `apply_rotary_pos_emb`": (MODELING, ROTARY, ROTARY.replace("=1)", "=1, more_NUMBER=None)")),
    "a parameter for `LlamaAttention.forward`": (MODELING, ATTENTION, f"more_NUMBER: int = 0,\n        {ATTENTION}"),
    "a new class": (MODELING, TOP, f"class LlamaMoreNUMBER(nn.Module):\n    pass\n\n\n{TOP}"),
    "another default in `LlamaConfig`": (CONFIGURATION, COUNT, COUNT.replace("32", "3NUMBER")),
    "`o_proj` renamed in `LlamaAttention`": (MODELING, "self.o_proj", "self.out_NUMBER_proj"),
}


def main() -> None:
    """Time a comparison from an empty cache, and one after each edit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", default="HEAD", help="what to compare with")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--update", action="store_true")
    given = parser.parse_args()
    keep_bytecode()
    measure([*CHECK, "--help"])
    with tempfile.TemporaryDirectory() as above:
        os.environ["MODULAR_CONVERTER_CACHE"] = os.path.join(above, "cache")
        package = _tree(os.path.join(above, "tree"))
        check = [*CHECK, "--root", package, "--breaking", "--against", given.against, "--exit-zero", "--quiet"]
        rows = [_row("all models, from an empty cache", 1, lambda n: measure(check))]
        for name, (file, old, new) in EDITS.items():
            path = os.path.join(package, "models", file)
            numbered = functools.partial(_after, check, path, old, new)
            rows.append(_row(name, given.runs, numbered))
    lines = ["| edit of llama | by the clock | of the processor |", "| --- | ---: | ---: |", *rows]
    made = (
        f"against {given.against}, transformers {version('transformers')}, {os.cpu_count()} cores with a load of "
        f"{os.getloadavg()[2]:.1f}, median of {given.runs}, {datetime.date.today():%d %B %Y}"
    )
    if given.update:
        write_part(CHANGES, "edits", "\n".join([*lines, "", made]))


def _tree(folder: str) -> str:
    """The package folder of a git tree that holds the models of the installed library."""
    spec = importlib.util.find_spec("transformers")
    assert spec is not None and spec.submodule_search_locations
    package = os.path.join(folder, "src", "transformers")
    shutil.copytree(spec.submodule_search_locations[0], package, ignore=shutil.ignore_patterns("__pycache__"))
    git = ["git", "-C", folder, "-c", "user.name=a", "-c", "user.email=a@b"]
    for command in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "all"]):
        subprocess.run([*git, *command], check=True)
    return package


def _after(check: list[str], path: str, old: str, new: str, number: int) -> tuple[float, float]:
    """The time of a comparison after an edit, which is taken back."""
    measure(check)
    with open(path, encoding="utf-8") as file:
        text = file.read()
    assert old in text, old
    with open(path, "w", encoding="utf-8") as file:
        file.write(text.replace(old, new.replace("NUMBER", str(number))) if old else text)
    try:
        return measure(check)
    finally:
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)


def _row(name: str, runs: int, timed: Callable[[int], tuple[float, float]]) -> str:
    seconds = [timed(number) for number in range(3, 3 + runs)]
    found = f"| {name} | {' | '.join(f'{statistics.median(one):.1f}' for one in zip(*seconds))} |"
    print(found, flush=True)
    return found


if __name__ == "__main__":
    main()
