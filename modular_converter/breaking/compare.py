"""What changes for those who use a model, from its facts in two trees; of two state dicts, as trees of modules: entries
that are removed, added, renamed, or have another shape.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

from modular_converter.breaking.facts import (
    ALIASES,
    KEYWORD,
    LOADING,
    MODEL_TYPE,
    FileFacts,
    ModelFacts,
    PublicClass,
    Signature,
)
from modular_converter.breaking.states import Node, Part, keys_of
from modular_converter.breaking.values import UNKNOWN, CodePlace, numbered


MOST = 60
"""Characters of an expression that a message quotes."""


class ModelChange(NamedTuple):
    """One change of a model."""

    rule: str
    """The name of its rule."""
    place: CodePlace
    """Where the new tree has what was changed, or the class that had it."""
    message: str
    """What happens, in words that are the same for all heirs."""
    word: str
    """The name by which the modular file would write it."""
    keys: tuple[str, ...] = ()
    """Of a state dict: the entries that change."""
    model: str = ""


def for_message(text: str | None) -> str:
    """An expression for a message: on one line, and not too long."""
    text = " ".join((text or "").split())
    return text if len(text) <= MOST else f"{text[:MOST]}…"


def changes_of_model(
    model: str, old: ModelFacts, new: ModelFacts, renamed: Mapping[str, str] = MappingProxyType({})
) -> list[ModelChange]:
    """The changes of a model, each once, in the order of its files; `renamed` has the new names of classes of a moved one."""
    found: dict[ModelChange, None] = {}
    for name, before in old.files.items():
        found.update(dict.fromkeys(_file(before, new.files.get(name), new, renamed)))
    for kind, was in old.renamings.items():
        now = new.renamings.get(kind, was)
        if now.text != was.text:
            message = f"changes how entries of checkpoints of `{kind}` are renamed"
            found[ModelChange("loading-changed", now.place, message, kind)] = None
    return [one._replace(model=model) for one in _joined(found)]


def _joined(found: Mapping[ModelChange, None]) -> list[ModelChange]:
    """Changes of one place and kind are one, with the entries of the class that has the most."""
    best: dict[ModelChange, ModelChange] = {}
    for one in found:
        key = one._replace(keys=())
        if key not in best or len(best[key].keys) < len(one.keys):
            best[key] = one
    return list(best.values())


def _file(
    old: FileFacts, new: FileFacts | None, whole: ModelFacts, renamed: Mapping[str, str]
) -> Iterator[ModelChange]:
    """The changes of a file. What it had may be in another file now; that is told where users find another thing there."""
    elsewhere = {name for file in whole.files.values() for name in (*file.exported, *file.classes)}
    if new is not None and not new.is_known:
        yield ModelChange(
            "state-not-known", CodePlace(new.path, 1), "cannot be read, so what it holds is not known", ""
        )
        return
    for name in old.exported:
        if name not in elsewhere:
            place = CodePlace(new.path, new.line) if new is not None else CodePlace(whole.init, 1)
            other = f", but `{renamed[name]}`" if renamed.get(name, name) != name else ""
            yield ModelChange("export-removed", place, f"no longer exports `{name}`{other}", name)
    moved = {name: one for file in whole.files.values() for name, one in file.classes.items()}
    for name, before in ((name, old.classes[name]) for name in old.exported if name in old.classes):
        after = (new.classes.get(name) if new is not None else None) or moved.get(renamed.get(name, name))
        if after is not None:
            yield from _class(before, after, renamed)
        elif name in elsewhere:  # made by a call, say: `Net = wrap(_Net)`
            place = CodePlace(new.path, new.line) if new is not None else CodePlace(whole.init, 1)
            yield ModelChange("state-not-known", place, f"what `{name}` is now is not known", name)


def _class(old: PublicClass, new: PublicClass, renamed: Mapping[str, str]) -> Iterator[ModelChange]:
    here = new.place
    if old.state is not None and new.state is not None:
        yield from compare_states(old.state, new.state)
    for name in old.bases:
        if renamed.get(name, name) not in new.bases and not name.startswith("_"):
            yield ModelChange("base-removed", here, f"no longer is a `{name}`", name)
    yield from _settings(old, new, here)
    for name, before in old.methods.items():
        after = new.methods.get(name)
        if after is not None and before.is_attribute != after.is_attribute:
            kind = "a property" if after.is_attribute else "a method"
            yield ModelChange("parameter-changed", after.place, f"`{name}` is {kind} now", name)
        elif after is not None and not before.is_attribute:
            yield from _signature(name, before, after, is_configuration=old.is_configuration)
        elif after is None and name not in ("__init__", "__post_init__") and not new.holds(name):
            owner = new.place_of(before.place.owner)
            if owner is not None:  # else the base is gone, which is told
                yield ModelChange("method-removed", owner, f"no longer defines `{name}`", name)
    yield from _variables(old, new, here)
    for name in old.documented:
        shown = name.rpartition(".")[2]
        if name not in new.documented:
            yield ModelChange("documented-argument", here, f"no longer documents `{name}`", shown)


def _settings(old: PublicClass, new: PublicClass, here: CodePlace) -> Iterator[ModelChange]:
    added = [name for name in new.fields if name not in old.fields]
    for name, before in old.fields.items():
        after = new.fields.get(name)
        if after is None:
            if name in ("kwargs", "args") or name in new.aliases:
                continue
            if name.endswith(KEYWORD):
                word = name.removesuffix(KEYWORD)
                place = new.place_of(before.place.owner) or here
                yield ModelChange("setting-removed", place, f"no longer takes `{word}` by name", word)
                continue
            same = [one for one in added if new.fields[one].text == before.text and _alike(one, name)]
            message = (
                f"renames the setting `{name}` to `{same[0]}`" if len(same) == 1 else f"removes the setting `{name}`"
            )
            yield ModelChange("setting-removed", new.place_of(before.place.owner) or here, message, name)
        elif after.text != before.text:
            message = (
                f"changes the default of `{name}` from `{for_message(before.text)}` to `{for_message(after.text)}`"
            )
            yield ModelChange("setting-default", after.place, message, name)
    for name, setting in old.aliases.items():
        other = new.aliases.get(name, "")
        if other != new.aliases.get(setting, setting) and name not in new.fields and not new.holds(name):
            place = new.variables[ALIASES].place if ALIASES in new.variables else here
            done = f"the name `{name}` no longer stands for the setting `{setting}`"
            message = f"{done}, but for `{other}`" if other else done
            yield ModelChange("setting-removed", place, message, name)
    was, now = old.variables.get(MODEL_TYPE), new.variables.get(MODEL_TYPE)
    if was is not None and now is not None and was.text != now.text:
        message = f"changes `model_type` from {was.text} to {now.text}"
        yield ModelChange("model-type-changed", now.place, message, MODEL_TYPE)


def _alike(one: str, other: str) -> bool:
    """Whether two names share a word."""
    return not set(one.split("_")).isdisjoint(other.split("_"))


def _signature(method: str, old: Signature, new: Signature, *, is_configuration: bool) -> Iterator[ModelChange]:
    """The changes of the parameters of a method. Those of a configuration's `__init__` are its settings."""
    if old.parameters == new.parameters or (is_configuration and method == "__init__"):
        return
    place = new.place
    before, after = ({one.name: one for one in side.parameters} for side in (old, new))
    renamed = _renamed(old, new)
    for name, one in before.items():
        other = after.get(renamed.get(name, name))
        if one.kind == "**" or (other is not None and other.name != name and name in new.decorated):
            continue
        if other is None or other.name != name:
            done = f"renames the parameter `{name}` to `{other.name}`" if other else f"has no parameter `{name}`"
            takes_any = any(one.kind == "**" for one in new.parameters)
            message = f"`{method}` {done}{' (`**` takes the old one, unread)' if takes_any else ''}"
            yield ModelChange("parameter-changed", place, message, other.name if other else name)
        elif one.default is not None and other.default is None:
            yield ModelChange("parameter-changed", place, f"`{method}` needs `{name}`, which had a default", name)
        elif one.default is not None and one.default != other.default:
            message = f"`{method}` changes the default of `{name}` from `{for_message(one.default)}` to `{for_message(other.default)}`"
            yield ModelChange("parameter-default", place, message, name)
    new_names = after.keys() - before.keys() - set(renamed.values())
    for name in (one.name for one in new.parameters if one.name in new_names and one.default is None):
        yield ModelChange("parameter-changed", place, f"`{method}` needs the new parameter `{name}`", name)
    by_position = [_positional(old, renamed), _positional(new, {})]
    if named := next((one for one in by_position[0] if one in after and one not in by_position[1]), ""):
        message = f"`{method}` takes `{named}` by its name only"
        yield ModelChange("parameter-changed", place, message, named)
    kept = [one for one in by_position[0] if one in by_position[1]]
    if moved := next((one for one, other in zip(by_position[1], kept) if one != other), ""):
        message = f"`{method}` has other parameters by position, from `{moved}` on"
        yield ModelChange("parameter-changed", place, message, moved)


def _positional(signature: Signature, renamed: Mapping[str, str]) -> list[str]:
    return [renamed.get(one.name, one.name) for one in signature.parameters if one.kind == "positional"]


def _renamed(old: Signature, new: Signature) -> dict[str, str]:
    """Old name -> new name of parameters in the same place, between the same neighbours, with the same default."""
    before, after = (_positional(side, {}) for side in (old, new))
    if len(before) != len(after):
        return {}
    pairs = [(one, other) for one, other in zip(before, after) if one != other]
    return dict(pairs) if all(one not in after and other not in before for one, other in pairs) else {}


def _variables(old: PublicClass, new: PublicClass, here: CodePlace) -> Iterator[ModelChange]:
    for name in dict.fromkeys((*old.variables, *new.variables)):
        before, after = old.variables.get(name), new.variables.get(name)
        if name not in (MODEL_TYPE, ALIASES) and (before.text if before else "") != (after.text if after else ""):
            done = "changes" if before and after else "adds" if after else "removes"
            place = after.place if after else (before and new.place_of(before.place.owner)) or here
            rule = "loading-changed" if LOADING.fullmatch(name) else "plan-changed"
            yield ModelChange(rule, place, f"{done} `{name}`", name)


def compare_states(old: Node, new: Node, prefix: str = "", layer: str = "") -> Iterator[ModelChange]:
    """The changes of one module; modules within that differ are compared in turn.

    Args:
        old: the module in the older tree.
        new: the module in the newer tree.
        prefix: the beginning of its entries.
        layer: its name if it is a layer of torch, whose parts no class of the tree names.
    """
    if old.digest == new.digest:
        return
    before, after = _by_name(old, new), _by_name(new, old)
    gone = [name for name in before if name not in after]
    come = [name for name in after if name not in before]
    if old.is_unknown or new.is_unknown:  # which says nothing of other names
        gone, come = ([name for name in names if name == UNKNOWN] for names in (gone, come))
    named = _Named(prefix, layer)
    for name in [*gone]:
        same = [one for one in come if _meanings(after[one]) == _meanings(before[name])]
        if same and len(same) == sum(_meanings(before[one]) == _meanings(before[name]) for one in gone):
            other = same[0]
            if keys := _keys(before[name], prefix):
                message = f"renames {named.shown(name)} to {named.shown(other)}"
                yield ModelChange("key-renamed", _own(after[other][0].place, new), message, named.word(other), keys)
            gone.remove(name)
            come.remove(other)
    for name in (*gone, *come):
        if any(one.unknown for one in (*before.get(name, ()), *after.get(name, ()))):
            place = _own(after[name][0].place, new) if name in after else new.place
            message = f"what {named.shown(name)} holds is not known"
            yield ModelChange("state-not-known", place, message, named.word(name))
    for name in gone:
        if keys := _keys(before[name], prefix):
            yield ModelChange("key-removed", new.place, f"removes {named.shown(name)}", named.word(name), keys)
    for name in come:
        if keys := _keys(after[name], prefix):
            place = _own(after[name][0].place, new)
            yield ModelChange("key-added", place, f"adds {named.shown(name)}", named.word(name), keys)
    for name in before:
        if name in after and _meanings(before[name]) != _meanings(after[name]):
            yield from _part(name, before[name], after[name], new, named)
        elif name in after and not _is_certain(after[name]):
            place, message = _own(after[name][0].place, new), f"whether it has {named.shown(name)}"
            if _is_certain(before[name]):
                yield ModelChange("state-not-known", place, f"{message} is not known", named.word(name))
            elif _conditions(before[name]) != _conditions(after[name]):
                message += " depends on another condition, which is not known"
                yield ModelChange("state-not-known", place, message, named.word(name))


class _Named(NamedTuple):
    """How messages name the parts of a module."""

    prefix: str
    layer: str

    @property
    def _holder(self) -> str:
        return next((one for one in reversed(self.prefix.split(".")) if one not in ("", "*")), "")

    def shown(self, name: str, key: str = "") -> str:
        """A part, or an entry of it; an item of a list with the list's name."""
        above = self._holder if name == "*" else self.layer
        return f"`{above}.{name}{key}`" if above else f"`{name}{key}`"

    def word(self, name: str) -> str:
        """The name by which a class writes it."""
        return self.layer.removesuffix(".*") or (self._holder if name == "*" else name) or name


def _part(name: str, old: list[Part], new: list[Part], node: Node, named: _Named) -> Iterator[ModelChange]:
    """The changes of what a module holds under one name in both trees."""
    first, other, prefix = old[0], new[0], named.prefix
    if len(old) == len(new) == 1 and first.module is not None and other.module is not None:
        of_torch = any(one.startswith("torch.") for one in (first.module.kind, other.module.kind))
        inner = named.shown(name).strip("`") if of_torch else ""
        yield from compare_states(first.module, other.module, f"{prefix}{name}.", inner)
        return
    place, word, shown = _own(other.place, node), named.word(name), named.shown(name)
    unknown = {one.unknown for one in old} ^ {one.unknown for one in new}
    if unknown - {""}:
        message = f"what {shown} holds is not known, and it is made otherwise"
        yield ModelChange("state-not-known", place, message, word)
        return
    before, after = ({key: part for one in side for key, part in _entries(one, "").items()} for side in (old, new))
    gone = tuple(f"{prefix}{name}{key}" for key in before if key not in after)
    come = tuple(f"{prefix}{name}{key}" for key in after if key not in before)
    if gone:
        yield ModelChange("key-removed", place, f"removes entries of {shown}", word, gone)
    if come:
        yield ModelChange("key-added", place, f"adds entries of {shown}", word, come)
    for key, one in before.items():
        if key in after and len(old) == len(new) == 1 and _differ(one, after[key]):
            was, now = one.shape, after[key].shape
            sizes = f"from `{for_message(was and was.text)}` to `{for_message(now and now.text)}`"
            message = f"changes the shape of {named.shown(name, key)} {sizes}"
            yield ModelChange("key-shape", place, message, word, (f"{prefix}{name}{key}",))


def _differ(one: Part, other: Part) -> bool:
    """Whether two tensors have other shapes: other words, unless both are known to be the same numbers."""
    if one.shape is None or other.shape is None or one.shape.text == other.shape.text:
        return False
    return not one.shape.numbers or one.shape.numbers != other.shape.numbers


def _entries(part: Part, prefix: str) -> dict[str, Part]:
    if part.module is not None:
        return {key: one.part for key, one in keys_of(part.module, f"{prefix}.").items()}
    return {} if part.unknown else {prefix: part}


def _keys(parts: list[Part], prefix: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(key for one in parts for key in _entries(one, f"{prefix}{one.name}")))


def _by_name(node: Node, other: Node) -> dict[str, list[Part]]:
    """The parts of a module by name: `conv_1` stands with `conv_*`, where either tree makes such names in a loop."""
    made = {part.name for one in (node, other) for part in one.parts if "*" in part.name}
    found: dict[str, list[Part]] = {}
    for part in node.parts:
        name = numbered(part.name)
        found.setdefault(name if name in made else part.name, []).append(part)
    return found


def _meanings(parts: list[Part]) -> frozenset[str]:
    return frozenset(one.meaning for one in parts)


def _conditions(parts: list[Part]) -> frozenset[str]:
    return frozenset(one.condition for one in parts)


def _is_certain(parts: list[Part]) -> bool:
    return any(one.is_certain for one in parts)


def _own(place: CodePlace, node: Node) -> CodePlace:
    """The place of a part; that of the module for a part of a layer of torch."""
    return place if place.owner else node.place
