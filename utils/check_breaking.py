"""Compare what `--breaking` says about state dicts with state dicts that really are built:
`python utils/check_breaking.py 5.22.2 5.23.0 5.24.0 --releases ~/releases --states ~/states`.

RELEASES holds an unpacked release in `tree/VERSION/transformers` each. `real_states.py` builds every model of a release
on the device `meta`, in a process of its own, and the result is kept in STATES, as is the static answer. Compared are
the entries, with `*` for numbers, that appear or vanish between two neighbouring releases, in each class that can be
built in both. `--update` puts the table into docs/figures/change.md.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from marked_pages import write_part


ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, ROOT)

from modular_converter.breaking.facts import ModelTree  # noqa: E402
from modular_converter.breaking.older import tree_at  # noqa: E402
from modular_converter.breaking.state import keys_of, unknown_parts  # noqa: E402
from modular_converter.convert.workers import without_collector  # noqa: E402
from modular_converter.settings.load import profile_settings  # noqa: E402


PAGE = Path(ROOT, "docs", "figures", "change.md")
Keys = dict[str, bool]
"""Entry -> whether it is certain; `name.?` for what is not known."""


class Counts(NamedTuple):
    """The entries that change between two releases."""

    pair: str
    classes: int
    real: int
    """Entries that really appear or vanish."""
    found: int
    """Those among them that the static answer has."""
    said: int
    """Entries of which the static answer is certain."""
    right: int
    """Those among them that really change."""
    wrong: tuple[str, ...]
    missed: tuple[str, ...]


def main() -> None:
    """Compare neighbouring releases."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("versions", nargs="+")
    parser.add_argument("--releases", type=Path, required=True)
    parser.add_argument("--states", type=Path, required=True)
    parser.add_argument("--sample", type=int, help="Besides models that really change, only so many random ones.")
    parser.add_argument("--update", action="store_true")
    given = parser.parse_args()
    given.states.mkdir(parents=True, exist_ok=True)
    real = {one: _real(one, given.releases, given.states) for one in given.versions}
    chosen = _chosen(real, given.versions, given.sample)
    static = {one: _static(one, given.releases, given.states, chosen) for one in given.versions}
    rows = [_compared(one, other, real, static) for one, other in zip(given.versions, given.versions[1:])]
    for row in rows:
        for kind, names in (("wrong", row.wrong), ("missed", row.missed)):
            print(*(f"{row.pair} {kind} {name}" for name in names), sep="\n")
    whole = _whole(given.versions[-1], real, static)
    text = "".join(_table(rows)) + f"\n{whole}\n"
    print(text)
    if given.update:
        write_part(PAGE, "oracle", text)


def _real(version: str, releases: Path, states: Path) -> dict[str, Any]:
    path = states / f"{version}.json"
    if not path.exists():
        script = os.path.join(ROOT, "utils", "real_states.py")
        subprocess.run([sys.executable, script, str(releases / "tree" / version), str(path)], check=True)
    found: dict[str, Any] = json.loads(path.read_text())
    return {name: one for name, one in found.items() if isinstance(one, dict)}


def _chosen(real: dict[str, dict[str, Any]], versions: list[str], sample: int | None) -> frozenset[str] | None:
    """The models that really change between neighbouring releases, and a random sample of the others; None for all."""
    if sample is None:
        return None
    changed = {
        name.split(".")[2]
        for one, other in zip(versions, versions[1:])
        for name, built in real[one].items()
        if name in real[other] and built["keys"].keys() != real[other][name]["keys"].keys()
    }
    models = sorted({name.split(".")[2] for name in real[versions[-1]]} - changed)
    return frozenset((*changed, *random.Random(0).sample(models, min(sample, len(models)))))


def _static(version: str, releases: Path, states: Path, chosen: frozenset[str] | None) -> dict[str, Keys]:
    suffix = "" if chosen is None else f".{len(chosen)}"
    path = states / f"{version}{suffix}.static.json"
    if not path.exists():
        models = str((releases / "tree" / version / "transformers" / "models").resolve())
        with without_collector():
            tree = tree_at(models, profile_settings())
            path.write_text(json.dumps(dict(_states(tree, chosen))))
    found: dict[str, Keys] = json.loads(path.read_text())
    return found


def _states(tree: ModelTree, chosen: frozenset[str] | None) -> Iterator[tuple[str, Keys]]:
    for model in sorted(tree.names if chosen is None else chosen & tree.names.keys()):
        for file, facts in tree.facts(model).files.items():
            for name, one in facts.classes.items():
                if one.state is not None:
                    keys = {key: entry.is_certain for key, entry in keys_of(one.state).items()}
                    keys |= {f"{beginning}.?": False for beginning in unknown_parts(one.state)}
                    yield f"transformers.models.{model}.{file.removesuffix('.py')}.{name}", keys


def _compared(one: str, other: str, real: dict[str, Any], static: dict[str, dict[str, Keys]]) -> Counts:
    shared = [name for name in real[one] if name in real[other] and name in static[one] and name in static[other]]
    real_changes: set[str] = set()
    possible: set[str] = set()
    certain: set[str] = set()
    for name in shared:
        for first, second, sign in ((one, other, "-"), (other, one, "+")):
            before, after = real[first][name]["keys"].keys(), real[second][name]["keys"].keys()
            real_changes |= {f"{name} {sign}{key}" for key in before - after}
            mine, theirs = static[first][name], static[second][name]
            changed = {key: mine[key] for key in mine if key not in theirs and not _is_unknown(key, theirs)}
            possible |= {f"{name} {sign}{key}" for key in changed}
            certain |= {f"{name} {sign}{key}" for key, is_certain in changed.items() if is_certain}
    return Counts(
        f"{one} → {other}",
        len(shared),
        len(real_changes),
        len(real_changes & possible),
        len(certain),
        len(certain & real_changes),
        tuple(sorted(certain - real_changes)),
        tuple(sorted(real_changes - possible)),
    )


def _is_unknown(key: str, others: Keys) -> bool:
    """Whether the other tree has, in place of an entry, something that is not known: that is told as such (MC609)."""
    parts = key.split(".")
    return any(".".join([*parts[:number], "?"]) in others for number in range(1, len(parts) + 1))


def _table(rows: list[Counts]) -> Iterator[str]:
    yield "| releases | classes built in both | entries that change | found | recall | said with certainty | right | precision |\n"
    yield "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n"
    sums = [sum(row[column] for row in rows) for column in range(1, 6)]  # type: ignore[misc]
    for name, *numbers in [*(row[:6] for row in rows), ("all", *sums)]:
        classes, real, found, said, right = numbers
        yield f"| {name} | {classes:,} | {real:,} | {found:,} | {_share(found, real)} | {said:,} | {right:,} | {_share(right, said)} |\n"


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "–"


def _whole(version: str, real: dict[str, Any], static: dict[str, Any]) -> str:
    """The agreement on whole state dicts, a harder question than that about changes."""
    shared = [name for name in real[version] if name in static[version]]
    every = certain = right = found = 0
    for name in shared:
        keys, said = real[version][name]["keys"].keys(), static[version][name]
        sure = {key for key, is_certain in said.items() if is_certain}
        every, found = every + len(keys), found + len(keys & said.keys())
        certain, right = certain + len(sure), right + len(sure & keys)
    return (
        f"Of the {every:,} entries that the {len(shared):,} classes of {version} really have, the text tells "
        f"{_share(found, every)}; of the {certain:,} that it tells with certainty, {_share(right, certain)} are there."
    )


if __name__ == "__main__":
    main()
