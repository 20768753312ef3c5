"""The body of a method as a list of statements, each with its text and its syntax tree, and what a statement does through
the methods and properties of its class.
"""

from __future__ import annotations

import ast
import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from modular_converter.findings import character_column
from modular_converter.model import lexer
from modular_converter.model.bindings import Bindings, Effects, Function, bindings_of, covers
from modular_converter.model.class_blocks import (
    INDENT,
    ClassSpan,
    Member,
    SourceLines,
    cut_block,
    lines_of,
    taken,
    with_standard_indentation,
)
from modular_converter.model.index import first_line, is_docstring
from modular_converter.model.nodes import dotted, parse, super_attribute, targets_of, walk, written
from modular_converter.model.overriding import first_parameter
from modular_converter.model.state import fills


BODY_INDENT = 2 * INDENT
"""The indentation of a method's statements."""


@dataclass(frozen=True, eq=False)
class Line:
    """One statement. Statements that semicolons separate are lines of their own."""

    node: ast.stmt
    spans: tuple[ClassSpan, ...]
    """The comments and blank lines above it, and last the statement itself."""
    written: ast.stmt | None = None
    """The statement before the merge removed a part of it."""

    @property
    def text(self) -> str:
        """Its own lines."""
        return self.spans[-1].text

    @property
    def whole(self) -> str:
        """Its own lines and those above."""
        return "".join(span.text for span in self.spans)

    def with_text(self, text: str) -> Line:
        """The same line with another text of its own."""
        return replace(self, spans=(*self.spans[:-1], self.spans[-1]._replace(text=text)))

    @property
    def origin(self) -> ast.stmt:
        """The statement as written, which identifies it."""
        return self.written or self.node

    @cached_property
    def original(self) -> str:
        """`normal` of the statement as it is written."""
        return ast.unparse(self.written) if self.written else self.normal

    @cached_property
    def bindings(self) -> Bindings:
        """What it does with names."""
        return bindings_of(self.node)

    @cached_property
    def effects(self) -> Effects:
        """The paths that it reads and changes."""
        return self.bindings.effects

    @cached_property
    def normal(self) -> str:
        """The statement without comments and white space, for comparisons."""
        return ast.unparse(self.node)

    @cached_property
    def targets(self) -> tuple[str, ...]:
        """The targets of an assignment as text (`a = b = 1` has two); () for any other statement."""
        is_assignment = getattr(self.node, "value", None) is not None  # and not `a: int`
        return tuple(map(written, targets_of(self.node))) if is_assignment else ()

    @cached_property
    def deleted(self) -> tuple[str, ...]:
        """The targets of a `del` statement, as text."""
        return tuple(map(written, self.node.targets)) if isinstance(self.node, ast.Delete) else ()

    def without_targets(self, targets: set[str]) -> Line | None:
        """An assignment or `del` without some of its targets; None when no target is left."""
        all_targets = self.targets or self.deleted
        kept = [position for position, target in enumerate(all_targets) if target not in targets]
        if not kept:
            return None
        if isinstance(self.node, ast.Assign):
            node = ast.Assign([self.node.targets[position] for position in kept], self.node.value)
            # `a = `, `b = ` and `value` of `a = b = value`.
            code = lexer.code_only(self.text)
            depth, ends = 0, [0]
            for place, character in enumerate(code):
                depth += (character in "([{") - (character in ")]}")
                if character == "=" and not depth and len(ends) <= len(all_targets):
                    ends.append(place + 1 + (self.text[place + 1] == " "))
            parts = [self.text[start:end] for start, end in itertools.pairwise([*ends, len(self.text)])]
            text = BODY_INDENT + "".join(parts[position] for position in (*kept, -1)).lstrip()
            return replace(self.with_text(text), node=ast.copy_location(node, self.node), written=self.origin)
        rest = added_line(f"del {', '.join(all_targets[position] for position in kept)}", self.node)
        return replace(rest, written=self.origin)


@dataclass(frozen=True)
class Body:
    """A method taken apart."""

    header: ClassSpan
    """Its decorators, and its signature up to the colon."""
    docstring: Line | None
    lines: list[Line]
    footer: ClassSpan
    """The comments behind the last statement."""


def body_of(method: Member) -> Body:
    """Take a method apart. Statements get the usual indentation."""
    lines = [*itertools.repeat("", method.line - 1), *lines_of(method.text)]
    nodes = method.function.body
    first = first_line(nodes[0], lines) - 1
    above = lines[first][: character_column(lines[first], nodes[0].col_offset)]
    if above.strip():  # on the line of the colon
        start = first + 1
        header = "".join(lines[method.line - 1 : first]) + above.rstrip() + "\n"
    elif above != BODY_INDENT:
        return body_of(_with_usual_indentation(method))
    else:
        start = first
        while not lines[start - 1].strip() or lines[start - 1].lstrip().startswith("#"):
            start -= 1
        header = "".join(lines[method.line - 1 : start])
    found: list[Line] = []
    end = start
    for node, lead, text, number in cut_block(nodes, lines, start, BODY_INDENT):
        lead_span = taken(lead, method.is_own, number - lead.count("\n"))
        found.append(Line(node, (lead_span, taken(text, method.is_own, number))))
        end = number - 1 + text.count("\n")
    docstring = found.pop(0) if is_docstring(nodes[0]) else None
    footer = taken("".join(lines[end:]), method.is_own, end + 1)
    return Body(taken(header, method.is_own, method.line), docstring, found, footer)


def _with_usual_indentation(method: Member) -> Member:
    heading = "class _:\n"
    text = with_standard_indentation(heading + method.text, INDENT)
    (block,) = parse("\n" * (method.line - 2) + text).body
    assert isinstance(block, ast.ClassDef)
    return replace(method, node=block.body[0], text=text.removeprefix(heading))


def added_line(text: str, near: ast.stmt) -> Line:
    """A new statement; findings about it have the place of `near`, a statement of the child."""
    node = ast.copy_location(parse(text).body[0], near)
    source = SourceLines(True, near.lineno, near.end_lineno or near.lineno)
    return Line(node, (ClassSpan(f"{BODY_INDENT}{text}\n", (source,)),))


def deleted_again(lines: Sequence[Line]) -> Iterator[Line]:
    """The `del` statements of targets that several delete: whether the later ones fail depends on all that stands between."""
    counts = Counter(target for part in lines for target in part.deleted)
    return (part for part in lines if any(counts[target] > 1 for target in part.deleted))


def only_removes(line: Line) -> bool:
    """Whether this is `self.x = self.x`, which removes the parent's assignment, as in the corpus (qwen3_omni)."""
    if not isinstance(line.node, (ast.Assign, ast.AnnAssign)) or isinstance(line.node.value, (ast.Call, ast.Constant)):
        return False
    return line.node.value is not None and written(line.node.value) in line.targets


def counts_twice(line: Line, instance: str) -> bool:
    """Whether a second execution has an effect of its own: it appends, counts, or calls something for its effect."""
    effects = line.effects
    return (
        bool(effects.changes - {instance})
        or any(covers(path, read) for path in effects.binds for read in effects.reads)
        or any(isinstance(node, ast.Expr) and not isinstance(node.value, ast.Constant) for node in ast.walk(line.node))
    )


MOST_FOLLOWED = 50
"""The most methods, direct and indirect, that are followed from one: time stays proportional to the input."""
_NO_EFFECTS = Effects(frozenset(), frozenset(), frozenset())
Test = Callable[[ast.AST, str], bool]
"""A question about code in which the instance has some name."""


class HiddenEffects:
    """The effects of the methods of one class, with those of the methods that they use. Methods of bases are unknown
    and may concern every attribute.
    """

    def __init__(self, methods: Mapping[str, Sequence[Function]], instance: str, is_init: bool = False) -> None:
        """`methods` has the functions of each name: the child's and the parent's. Calls of unknown methods count only
        in `__init__`: elsewhere `self.mlp(x)` mostly calls a module.
        """
        self._methods = methods
        self._is_init = is_init
        self._instance = instance
        self._names = {f"{instance}.{name}": name for name in methods}
        self._paths = frozenset(self._names)
        self._reached: dict[str, frozenset[str]] = {}
        self._own: dict[str, Effects] = {}
        self._effects: dict[frozenset[str], Effects] = {}
        self._answers: dict[tuple[Test, str | frozenset[str]], bool] = {}

    def of(self, effects: Effects) -> Effects:
        """The paths of the instance that a statement with these effects reads and changes through the methods that it
        uses.
        """
        return _together(map(self._effects_of, self._used(effects)))

    @cached_property
    def of_all(self) -> Effects:
        """The effects of all methods, whatever uses them."""
        return _together(map(self._own_effects, self._methods))

    def are_too_many(self, some: Iterable[Effects]) -> bool:
        """Whether a statement with one of these effects uses more methods than are followed."""
        if len(self._methods) <= MOST_FOLLOWED:
            return False
        return any(len(methods) > MOST_FOLLOWED for effects in some for methods in self._used(effects))

    def may_set_any(self, node: ast.AST, effects: Effects) -> bool:
        """Whether a statement, or a method that it uses, may set any attribute: `setattr(self, key, value)`."""
        if self._instance not in effects.reads:
            return False
        return hands_over(node, self._instance) or self._is_so(_sets_any, node, effects)

    def may_change_any(self, node: ast.AST, effects: Effects) -> bool:
        """Whether a statement may set any attribute, or calls a method of a base: `self.register_buffer("a", a)`."""
        return self.may_set_any(node, effects) or (self._is_init and self._calls_base(node))

    def only_sets_up(self, node: ast.AST, effects: Effects, path: str) -> bool:
        """Whether a statement, or a method that it uses, changes the object of an attribute, but neither puts another
        in its place nor changes what it holds: `self.places.requires_grad_(False)`, `self.tokenizer.decoder = decoder`.
        """
        mine, theirs = effects, self.of(effects)
        attribute = path.removeprefix(f"{self._instance}.")
        return (
            any(covers(path, changed) for changed in mine.objects_changed | theirs.objects_changed)
            and path not in mine.binds | theirs.binds
            and not self._is_so(lambda part, instance: fills(part, f"{instance}.{attribute}"), node, effects)
        )

    def may_read_any(self, node: ast.AST, effects: Effects) -> bool:
        """Whether a statement, or a method that it uses, may read any attribute: `count(self)`, `self.__dict__`."""
        if effects.reads.isdisjoint((self._instance, "super")):
            return False
        return self._is_so(_reads_any, node, effects) or (self._is_init and self._calls_base(node))

    def runs_setter(self, paths: Iterable[str]) -> bool:
        """Whether a method of the class is called where one of some attributes is set, which then counts twice."""
        set_ = [path for path in paths if path.startswith(f"{self._instance}.")]
        if "__setattr__" in self._methods:
            return bool(set_)
        functions = (one for path in set_ if path in self._names for one in self._methods[self._names[path]])
        return any(
            isinstance(by, ast.Attribute) and by.attr == "setter" for one in functions for by in one.decorator_list
        )

    def _calls_base(self, node: ast.AST) -> bool:
        """Whether a statement calls a method that only a base can have, or one of a base: `super().parameters()`."""
        return any(
            isinstance(part, ast.Call)
            and isinstance(part.func, ast.Attribute)
            and (
                super_attribute(part.func) not in ("", "__init__")
                or (dotted(part.func.value) == self._instance and part.func.attr not in self._methods)
            )
            for part in walk(node)
        )

    def _is_so(self, test: Test, node: ast.AST, effects: Effects) -> bool:
        """Whether a test holds for a statement or for a method that it uses."""
        return test(node, self._instance) or any(self._is_so_in(test, methods) for methods in self._used(effects))

    def _is_so_in(self, test: Test, methods: str | frozenset[str]) -> bool:
        """Whether a test holds for the bodies of the functions of a name, or of one of some names."""
        if (answer := self._answers.get((test, methods))) is None:
            if isinstance(methods, str):
                pairs = ((part, first_parameter(one)) for one in self._methods[methods] for part in one.body)
                answer = any(bool(instance) and test(part, instance) for part, instance in pairs)
            else:
                answer = any(self._is_so_in(test, name) for name in methods)
            self._answers[test, methods] = answer
        return answer

    def _used(self, effects: Effects) -> list[frozenset[str]]:
        """For each method that a statement uses: its name and those of the methods that it uses in turn."""
        return [self._reached_from(self._names[path]) for path in sorted(effects.reads & self._paths)]

    def _reached_from(self, name: str) -> frozenset[str]:
        if name not in self._reached:
            found, todo = {name}, [name]
            while todo and len(found) <= MOST_FOLLOWED:
                reads = self._own_effects(todo.pop()).reads
                todo += sorted({self._names[path] for path in reads & self._paths} - found)
                found.update(todo)
            self._reached[name] = frozenset(found)
        return self._reached[name]

    def _effects_of(self, methods: frozenset[str]) -> Effects:
        if methods not in self._effects:
            self._effects[methods] = _together(map(self._own_effects, sorted(methods)))
        return self._effects[methods]

    def _own_effects(self, name: str) -> Effects:
        """The effects on attributes of the instance of the functions of a name."""
        if name not in self._own:
            self._own[name] = _together(map(self._on_instance, self._methods[name]))
        return self._own[name]

    def _on_instance(self, function: Function) -> Effects:
        """The effects of a method on attributes, under the name that the instance has here."""
        start = f"{first_parameter(function)}."

        def attributes(paths: frozenset[str]) -> frozenset[str]:
            return frozenset(f"{self._instance}.{path[len(start) :]}" for path in paths if path.startswith(start))

        return Effects(*map(attributes, bindings_of(*function.body).effects)) if start != "." else _NO_EFFECTS


def _together(some: Iterable[Effects]) -> Effects:
    first, *others = [*some] or [_NO_EFFECTS]
    return Effects(*(paths.union(*more) for paths, *more in zip(first, *others))) if others else first


def _reads_any(node: ast.AST, instance: str) -> bool:
    """Whether code passes an instance to other code, or reads all its attributes."""
    return hands_over(node, instance) or any(_holds_all(part, instance) for part in walk(node))


def _sets_any(node: ast.AST, instance: str) -> bool:
    """Whether code sets attributes of an instance by computed names."""
    for part in walk(node):
        if isinstance(part, ast.Call) and dotted(part.func) == "setattr" and len(part.args) == 3:
            if dotted(part.args[0]) == instance and not isinstance(part.args[1], ast.Constant):
                return True
        elif (
            isinstance(part, ast.Attribute)
            and part.attr == "__setattr__"
            or isinstance(part, (ast.Attribute, ast.Subscript))
            and _holds_all(part.value, instance)
        ):
            return True
    return False


def _holds_all(node: ast.AST, instance: str) -> bool:
    """Whether this is the dictionary of the attributes: `self.__dict__`, `vars(self)`."""
    if isinstance(node, ast.Call):
        return dotted(node.func) == "vars" and [dotted(one) for one in node.args] == [instance]
    return isinstance(node, ast.Attribute) and node.attr == "__dict__" and dotted(node.value) == instance


def hands_over(node: ast.AST, name: str) -> bool:
    """Whether a statement passes an object to other code, as in `count(self)`; `super(New, self)` does not count."""
    parts = walk(node)
    owners = {id(part.value) for part in parts if isinstance(part, ast.Attribute)}
    owners |= {
        id(one) for part in parts if isinstance(part, ast.Call) and dotted(part.func) == "super" for one in part.args
    }
    return any(
        isinstance(part, ast.Name) and part.id == name and isinstance(part.ctx, ast.Load) and id(part) not in owners
        for part in parts
    )
