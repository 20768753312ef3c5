"""Carry random edits of published generated files back: `python utils/fuzz_absorb.py 500 --seed 1`.

Each edit changes, adds or removes a line of a generated file of the installed transformers, in memory. It is carried to
the modular file and proven, or refused. A carried edit is judged again by a conversion of its own: it has to give the
edited text, and the model's other files as published.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import random
import sys
from collections import Counter
from importlib.metadata import version

from marked_pages import write_outcomes


ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, ROOT)

from modular_converter.authoring.absorb import absorb  # noqa: E402
from modular_converter.convert.batch import Run  # noqa: E402
from modular_converter.files.arguments import discover  # noqa: E402
from modular_converter.files.write import is_generated  # noqa: E402
from modular_converter.settings.load import load_settings_of  # noqa: E402
from modular_converter.settings.values import Settings  # noqa: E402


def main() -> None:
    """Try random edits; exits with 1 if one is carried wrongly."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("number", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--update", action="store_true", help="put the figures into docs/figures/change.md")
    given = parser.parse_args()
    spec = importlib.util.find_spec("transformers")
    assert spec is not None and spec.origin is not None, "transformers is not installed"
    modular = discover(["all"], os.path.join(os.path.dirname(spec.origin), "models")).paths
    settings = load_settings_of(modular)
    outcomes: Counter[str] = Counter()
    for number in range(1, given.number + 1):
        chance = random.Random(
            f"{given.seed}:{number - 1}"
        )  # each edit by itself, so that several may be tried at a time
        outcome = _try(chance.choice(modular), settings, chance)
        outcomes[outcome.partition(":")[0]] += 1
        if outcome.startswith("wrong"):
            print(outcome)
        if number % 25 == 0 or number == given.number:
            print(", ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes.items())), flush=True)
            if given.update:
                write_outcomes(
                    "absorb", "edits", f"seed {given.seed}, transformers {version('transformers')}", outcomes
                )
    sys.exit(outcomes["wrong"] > 0)


def _try(modular: str, settings: Settings, chance: random.Random) -> str:
    folder = os.path.dirname(modular)
    texts = {}
    for name in sorted(os.listdir(folder)):
        if name.endswith(".py"):
            with open(os.path.join(folder, name), encoding="utf-8") as file:
                text = file.read()
            if os.path.basename(is_generated(text)) == os.path.basename(modular):
                texts[os.path.join(folder, name)] = text
    path = chance.choice(sorted(texts))
    edited = _edited(texts[path], chance)
    found = absorb(path, settings, wanted=edited)
    if not found.texts:
        return "refused"
    made = Run(settings, dict(found.texts), workers=1).convert([modular])[0]
    return "proven" if made.files == {**texts, path: edited} else f"wrong: {path}"


def _edited(text: str, chance: random.Random) -> str:
    lines = text.split("\n")
    places = [
        n for n, line in enumerate(lines) if line.startswith("    ") and " = " in line and line.rstrip().endswith(")")
    ]
    if not places:
        return text + "\n# an edit\n"
    place = chance.choice(places)
    kind = chance.choice(("change", "add", "remove"))
    margin = lines[place][: len(lines[place]) - len(lines[place].lstrip())]
    if kind == "add":
        lines.insert(place, f"{margin}added = {chance.randint(0, 999)}")
    elif kind == "remove":
        del lines[place]
    else:
        lines[place] = f"{margin}changed = {chance.randint(0, 999)}"
    return "\n".join(lines)


if __name__ == "__main__":
    main()
