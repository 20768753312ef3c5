"""Compare what `--breaking` says about state dicts and signatures with classes that really are imported and built:
`python utils/check_breaking.py 5.22.2 5.23.0 5.24.0 --releases ~/releases --states ~/states`.

RELEASES holds an unpacked release in `tree/VERSION/transformers` each, as `check_releases.py --cache` leaves it.
`real_states.py` imports every model of a release and builds it on the device `meta`, in a process of its own, and the
result is kept in STATES, as is the static answer. Compared are the changes between two neighbouring releases, in each
class that can be built, or imported, in both: entries, with `*` for numbers, that appear or vanish; public methods,
their parameters and the settings of configurations that appear, vanish, or get another default. `--update` puts the
tables into docs/figures/change.md.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from marked_pages import write_part


ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, ROOT)

from modular_converter.breaking.facts import ModelTree, PublicClass  # noqa: E402
from modular_converter.breaking.older import tree_at  # noqa: E402
from modular_converter.breaking.states import Node, keys_of  # noqa: E402
from modular_converter.breaking.values import numbered  # noqa: E402
from modular_converter.convert.batch import in_processes, without_collector  # noqa: E402
from modular_converter.settings.load import profile_settings  # noqa: E402


PAGE = Path(ROOT, "docs", "figures", "change.md")
Keys = dict[str, bool]
"""Entry -> whether it is certain; `name.?` for what is not known."""


Methods = dict[str, dict[str, list[str]]]
"""Public method -> parameter -> its kind and default."""


class Counts(NamedTuple):
    """The changes between two releases."""

    pair: str
    classes: int
    real: int
    """Those that really happen."""
    found: int
    """Those among them that the static answer has."""
    said: int
    """Those of which the static answer is certain."""
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
    parser.add_argument("--update", action="store_true")
    given = parser.parse_args()
    given.states.mkdir(parents=True, exist_ok=True)
    real = {one: _real(one, given.releases, given.states) for one in given.versions}
    static = {one: _static(one, given.releases, given.states) for one in given.versions}
    pairs = list(zip(given.versions, given.versions[1:]))
    states = [_compared(one, other, real, static) for one, other in pairs]
    signatures = [_compared_signatures(one, other, real, static) for one, other in pairs]
    for row in (*states, *signatures):
        for kind, names in (("wrong", row.wrong), ("missed", row.missed)):
            print("".join(f"{row.pair} {kind} {name}\n" for name in names), end="")
    whole = _whole(given.versions[-1], real, static)
    for part, text in (
        ("oracle", "".join(_table("entries that change", states)) + f"\n{whole}\n"),
        ("signatures", "".join(_table("methods, parameters and settings that change", signatures))),
    ):
        print(text)
        if given.update:
            write_part(PAGE, part, text)


def _real(version: str, releases: Path, states: Path) -> dict[str, Any]:
    path = states / f"{version}.json"
    if not path.exists():
        script = os.path.join(ROOT, "utils", "real_states.py")
        subprocess.run([sys.executable, script, str(releases / "tree" / version), str(path)], check=True)
    found: dict[str, Any] = json.loads(path.read_text())
    found["states"] = {name: one for name, one in found["states"].items() if isinstance(one, dict)}
    return found


def _static(version: str, releases: Path, states: Path) -> dict[str, Any]:
    path = states / f"{version}.static.json"
    if not path.exists():
        models = str((releases / "tree" / version / "transformers" / "models").resolve())
        with without_collector():
            tree = tree_at(models, profile_settings())
            made = in_processes(_facts_of, tree, sorted(tree.names), 0, lambda done: None)
        compared = ("states", "signatures")
        parts = {part: {key: one for each in made for key, one in each[part].items()} for part in compared}
        path.write_text(json.dumps(parts))
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def _facts_of(models: Iterable[str], tree: ModelTree, progress: Callable[[int], None]) -> list[dict[str, Any]]:
    """The entries and the public methods of the classes of some models."""
    found = []
    for model in models:
        states: dict[str, Keys] = {}
        signatures: dict[str, Methods] = {}
        conditions: dict[str, set[tuple[str, str]]] = {}
        for file, facts in tree.facts(model).files.items():
            for name, one in facts.classes.items():
                whole = f"transformers.models.{model}.{file.removesuffix('.py')}.{name}"
                signatures[whole] = dict(_methods(one))
                if one.state is not None:
                    conditions[whole] = set(_conditions(one.state))
                    states[whole] = {}
                    for key, entry in keys_of(one.state).items():  # the real ones have `*` for numbers
                        states[whole][numbered(key)] = entry.is_certain or states[whole].get(numbered(key), False)
                    states[whole] |= {f"{numbered(beginning)}.?": False for beginning in unknown_parts(one.state)}
        found.append({"states": states, "signatures": signatures, "conditions": conditions})
        progress(1)
    return found


def unknown_parts(node: Node, prefix: str = "", above: tuple[int, ...] = ()) -> Iterator[str]:
    """The beginnings of the entries that a part may have which is not known."""
    if id(node) in above:
        return
    for part in node.parts:
        if part.unknown:
            yield prefix + part.name
        elif part.module is not None:
            yield from unknown_parts(part.module, f"{prefix}{part.name}.", (*above, id(node)))


def _conditions(node: Node, prefix: str = "", above: tuple[int, ...] = ()) -> Iterator[tuple[str, str]]:
    """The beginnings of entries with the words of what decides whether they are there."""
    for part in node.parts if id(node) not in above else ():
        if part.condition:
            yield numbered(prefix + part.name), part.condition
        if part.module is not None:
            yield from _conditions(part.module, f"{prefix}{part.name}.", (*above, id(node)))


def _methods(one: PublicClass) -> Iterator[tuple[str, dict[str, list[str]]]]:
    for name, method in one.methods.items():
        if not method.is_attribute:
            yield name, {each.name: [each.kind, each.default or ""] for each in method.parameters}
    if one.is_configuration:
        yield "__init__", {name: ["named", field.text] for name, field in one.fields.items()}


def _compared_signatures(one: str, other: str, real: dict[str, Any], static: dict[str, Any]) -> Counts:
    sides = [side[version]["signatures"] for side in (real, static) for version in (one, other)]
    shared = [name for name in sides[0] if all(name in side for side in sides[1:])]
    really = {change for name in shared for change in _signature_changes(name, sides[0][name], sides[1][name])}
    said = {change for name in shared for change in _signature_changes(name, sides[2][name], sides[3][name])}
    right = really & said
    wrong, missed = sorted(said - really), sorted(really - said)
    return Counts(
        f"{one} → {other}", len(shared), len(really), len(right), len(said), len(right), tuple(wrong), tuple(missed)
    )


def _signature_changes(name: str, old: Methods, new: Methods) -> Iterator[str]:
    for method in sorted(old.keys() | new.keys()):
        if (method in old) != (method in new):
            yield f"{name} {'-' if method in old else '+'}{method}"
            continue
        before, after = old[method], new[method]
        for parameter in sorted((before.keys() | after.keys()) - {"kwargs", "args"}):
            if (parameter in before) != (parameter in after):
                yield f"{name} {'-' if parameter in before else '+'}{method}({parameter})"
            elif before[parameter][1] != after[parameter][1]:
                yield f"{name} ~{method}({parameter})"


def _compared(one: str, other: str, real: dict[str, Any], static: dict[str, Any]) -> Counts:
    sides = {(kind, version): side[version]["states"] for kind, side in ((0, real), (1, static)) for version in side}
    shared = [name for name in sides[0, one] if all(name in sides[at] for at in ((0, other), (1, one), (1, other)))]
    real_changes: set[str] = set()
    possible: set[str] = set()
    certain: set[str] = set()
    for name in shared:
        for first, second, sign in ((one, other, "-"), (other, one, "+")):
            before, after = sides[0, first][name].keys(), sides[0, second][name].keys()
            real_changes |= {f"{name} {sign}{key}" for key in before - after}
            mine, theirs = sides[1, first][name], sides[1, second][name]
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


def _table(what: str, rows: list[Counts]) -> Iterator[str]:
    yield f"| releases | classes in both | {what} | found | recall | said with certainty | right | precision |\n"
    yield "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n"
    numbers = [row[1:6] for row in rows]
    names = [*(row.pair for row in rows), "all"]
    for name, (classes, real, found, said, right) in zip(names, [*numbers, [sum(one) for one in zip(*numbers)]]):
        yield f"| {name} | {classes:,} | {real:,} | {found:,} | {_share(found, real)} | {said:,} | {right:,} | {_share(right, said)} |\n"


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "–"


def _whole(version: str, real: dict[str, Any], static: dict[str, Any]) -> str:
    """The agreement on whole state dicts, a harder question than that about changes."""
    built, told = real[version]["states"], static[version]["states"]
    shared = [name for name in built if name in told]
    every = certain = right = found = 0
    for name in shared:
        keys, said = built[name].keys(), told[name]
        sure = {key for key, is_certain in said.items() if is_certain}
        every, found = every + len(keys), found + len(keys & said.keys())
        certain, right = certain + len(sure), right + len(sure & keys)
    return (
        f"Of the {every:,} entries that the {len(shared):,} classes of {version} really have, the text tells "
        f"{_share(found, every)}; of the {certain:,} that it tells with certainty, {_share(right, certain)} are there."
    )


if __name__ == "__main__":
    main()
