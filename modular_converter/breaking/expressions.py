"""Expressions of bodies as values, and the calls of Python and torch that decide names and shapes."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from modular_converter.breaking import layers
from modular_converter.breaking.bounds import NOT_KNOWN, computed, concatenated, is_in, is_not_in, one_text, spend
from modular_converter.breaking.conventions import ITERATED, LibraryInterpreter, iterated
from modular_converter.breaking.layers import LEAVE_MODULES, call_on_tree, is_instance, submodule
from modular_converter.breaking.names import Frame
from modular_converter.breaking.values import (
    EMPTY_BUFFER,
    NONE,
    POST_INIT,
    Ancestors,
    ClassValue,
    CodePlace,
    Either,
    Expression,
    External,
    FunctionValue,
    HeldTensor,
    Items,
    Layer,
    ObjectValue,
    Partial,
    Value,
    either,
    is_any_name,
    is_configuration,
    is_module,
    key_text,
    mapping,
    name_of,
    of_text,
    pairs_of,
    part_of_name,
    plain,
    sequence,
    truth,
)
from modular_converter.model.nodes import super_attribute


_OPERATORS: Mapping[type[ast.AST], tuple[str, Callable[[Any, Any], object]]] = {
    ast.Add: ("+", operator.add),
    ast.Sub: ("-", operator.sub),
    ast.Mult: ("*", operator.mul),
    ast.Div: ("/", operator.truediv),
    ast.FloorDiv: ("//", operator.floordiv),
    ast.Mod: ("%", operator.mod),
    ast.Pow: ("**", operator.pow),
    ast.LShift: ("<<", operator.lshift),
    ast.BitOr: ("|", operator.or_),
    ast.BitAnd: ("&", operator.and_),
    ast.Eq: ("==", operator.eq),
    ast.NotEq: ("!=", operator.ne),
    ast.Lt: ("<", operator.lt),
    ast.LtE: ("<=", operator.le),
    ast.Gt: (">", operator.gt),
    ast.GtE: (">=", operator.ge),
    ast.In: ("in", is_in),
    ast.NotIn: ("not in", is_not_in),
    ast.Is: ("is", operator.is_),
    ast.IsNot: ("is not", operator.is_not),
}
COMPUTED: Mapping[str, Callable[..., object]] = {
    f"builtins.{one.__name__}": one
    for one in (int, float, str, bool, len, max, min, abs, sum, round, range, list, tuple, sorted, set, all, any)
}
"""Functions that are computed where their arguments are known."""
_COUNTING = frozenset(f"builtins.{one}" for one in ("abs", "int", "len", "max", "min", "range", "round", "sum"))
"""Those that make numbers, which names are told apart by."""
_SAME = frozenset(
    {"to", "half", "float", "bfloat16", "eval", "train", "requires_grad_", "contiguous", "cuda", "clone"}
)
"""Methods that give the same tensor or module."""


_NO_MODULES = ("builtins.", "torch.", "numpy.", "math.", "copy.", "os.", "warnings.")
"""Packages whose functions make no modules, but for `torch.nn`, whose layers are known, or said not to be."""
_ONLY_LOOK = ("builtins.", "copy.", "warnings.", "weakref.", "torch.nn.init.", "torch.nn.functional.")
"""Packages whose functions leave the modules that they are given as they are."""


def _sequence(run: LibraryInterpreter, node: ast.List | ast.Tuple | ast.Set, frame: Frame) -> Value:
    items: list[Value] = []
    for one in node.elts:
        if isinstance(one, ast.Starred):
            spread = run.evaluate(one.value, frame)
            items += [item for _, item in spread.items] if isinstance(spread, Items) else run.turns(spread)
        else:
            items.append(run.evaluate(one, frame))
    return sequence(items)


def _set(run: LibraryInterpreter, node: ast.Set, frame: Frame) -> Value:
    items = run.evaluate(ast.List(node.elts), frame)
    known = computed(set, plain(items))
    return items if known is NOT_KNOWN else Expression(ast.unparse(node), known)


def _dict(run: LibraryInterpreter, node: ast.Dict, frame: Frame) -> Value:
    items: list[tuple[str, Value]] = []
    for key, one in zip(node.keys, node.values):
        value = run.evaluate(one, frame)
        if key is None:
            spread = mapping(value)
            items += spread.items if spread is not None else []
        else:
            items.append((key_text(run.evaluate(key, frame)), value))
    return Items(items, is_mapping=True)


def _combined(op: ast.AST, left: Value, right: Value, node: ast.expr) -> Value:
    if isinstance(op, ast.Add) and isinstance(left, Items) and isinstance(right, Items):
        return sequence((one for _, one in (*left.items, *right.items)), left.is_module)
    if isinstance(op, ast.Mult) and isinstance(left, Items) and any(is_module(one) for _, one in left.items):
        return left if plain(right) != 0 else Items([])
    if type(op) not in _OPERATORS:
        return Expression(f"{left.text} {ast.unparse(node)} {right.text}")
    sign, compute = _OPERATORS[type(op)]
    text = f"({left.text} {sign} {right.text})"
    if isinstance(left, (ObjectValue, Layer, HeldTensor, ClassValue)) and right is NONE:
        return Expression(text, isinstance(op, (ast.IsNot, ast.NotEq)))
    found = computed(compute, plain(left), plain(right))
    if found is not NOT_KNOWN:
        return Expression(text, found)
    counts = any(isinstance(one, Expression) and one.is_count for one in (left, right))
    return Expression(text, name=name_of(op, left, right), is_count=counts)


def _compare(run: LibraryInterpreter, node: ast.Compare, frame: Frame) -> Value:
    if len(node.ops) > 1:
        return Expression(ast.unparse(node))
    if (
        counted := _counted(node)
    ) is not None:  # of a list that a loop made, the number is not known, but that it has some
        listed = run.evaluate(counted, frame)
        if isinstance(listed, Items):
            return Expression(f"len({listed.text}) > 0", truth(listed))
    left = run.evaluate(node.left, frame)
    right = run.evaluate(node.comparators[0], frame)
    if isinstance(right, Expression) and right.value is None:
        right = NONE
    return _combined(node.ops[0], left, right, node)


def _counted(node: ast.Compare) -> ast.expr | None:
    """`x` of `len(x) > 0`."""
    call, limit = node.left, node.comparators[0]
    if not isinstance(node.ops[0], ast.Gt) or not isinstance(limit, ast.Constant) or limit.value != 0:
        return None
    is_length = isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "len"
    return call.args[0] if isinstance(call, ast.Call) and is_length and len(call.args) == 1 else None


def _bool(run: LibraryInterpreter, node: ast.BoolOp, frame: Frame) -> Value:
    ends = isinstance(node.op, ast.Or)
    found: Value | None = None
    doubtful = False
    for one in node.values:
        value = run.evaluate(one, frame)
        known = truth(value)
        found = value if found is None or not doubtful else either(found, value)
        if known is ends:
            return value if not doubtful or value is found else found
        doubtful = doubtful or known is None
    return found if found is not None else NONE


def _unary(run: LibraryInterpreter, node: ast.UnaryOp, frame: Frame) -> Value:
    value = run.evaluate(node.operand, frame)
    if isinstance(node.op, ast.Not):
        known = truth(value)
        return Expression(f"not {value.text}", NOT_KNOWN if known is None else not known)
    return Expression(
        f"-{value.text}", computed(operator.neg, plain(value)) if isinstance(node.op, ast.USub) else NOT_KNOWN
    )


def _choice(run: LibraryInterpreter, node: ast.IfExp, frame: Frame) -> Value:
    test = run.evaluate(node.test, frame)
    known = truth(test)
    if known is not None:
        return run.evaluate(node.body if known else node.orelse, frame)
    found = either(run.evaluate(node.body, frame), run.evaluate(node.orelse, frame))
    return replace(found, condition=f"if {test.text} {found.condition}") if isinstance(found, Either) else found


def _joined(run: LibraryInterpreter, node: ast.JoinedStr, frame: Frame) -> Value:
    values = [run.evaluate(one.value if isinstance(one, ast.FormattedValue) else one, frame) for one in node.values]
    return Expression(repr(one_text(map(key_text, values))), computed(concatenated, [*map(part_of_name, values)]))


def _comprehension(
    run: LibraryInterpreter, node: ast.ListComp | ast.GeneratorExp | ast.SetComp, frame: Frame
) -> Value:
    items: list[Value] = []

    def add(condition: str) -> None:
        items.append(_perhaps(run.evaluate(node.elt, frame), condition))

    _turn(run, node.generators, 0, frame, add)
    return sequence(items)


def _dict_comprehension(run: LibraryInterpreter, node: ast.DictComp, frame: Frame) -> Value:
    items: list[tuple[str, Value]] = []

    def add(condition: str) -> None:
        key, value = key_text(run.evaluate(node.key, frame)), run.evaluate(node.value, frame)
        items.append((key, _perhaps(value, condition)))

    _turn(run, node.generators, 0, frame, add)
    return Items(items, is_mapping=True)


def _turn(
    run: LibraryInterpreter,
    generators: list[ast.comprehension],
    depth: int,
    frame: Frame,
    add: Callable[[str], None],
    condition: str = "",
) -> None:
    """Call `add` for each turn of a comprehension, with the words of its tests that are not known."""
    if depth == len(generators):
        add(condition)
        return
    one = generators[depth]
    for item in run.turns(run.evaluate(one.iter, frame)):
        run.assign(one.target, item, frame)
        tests = [run.evaluate(test, frame) for test in one.ifs]
        if all(truth(test) is not False for test in tests):
            unknown = [f"if {test.text} " for test in tests if truth(test) is None]
            _turn(run, generators, depth + 1, frame, add, one_text([condition, *unknown]))


def _perhaps(value: Value, condition: str) -> Value:
    """A value that a list has on a condition; "" for none."""
    found = either(value, NONE) if condition and is_module(value) else value
    return replace(found, condition=condition) if condition and isinstance(found, Either) else found


def _subscript(run: LibraryInterpreter, node: ast.Subscript, frame: Frame) -> Value:
    value = run.evaluate(node.value, frame)
    if isinstance(node.slice, ast.Slice):
        return _slice(run, value, node, frame)
    key = run.evaluate(node.slice, frame)
    known = plain(key)
    text = f"{value.text}[{key.text}]"
    if isinstance(value, Items):
        number = known if isinstance(known, int) and not value.is_mapping else len(value.items)
        if -len(value.items) <= number < len(value.items):  # else one of a list that a loop makes, followed once
            return value.items[number][1]
        named = [one for name, one in value.items if name == str(known)]
        if known is not NOT_KNOWN and named:
            return named[-1]
        options = [one for _, one in value.items]  # a key that it lacks would be an error, so it is another one
        are_things = all(isinstance(one, (ClassValue, FunctionValue, External)) or is_module(one) for one in options)
        return Either(tuple(options)) if options and are_things else Expression(text)
    if isinstance(value, Expression) and value.is_known and known is not NOT_KNOWN:
        return Expression(text, computed(operator.getitem, value.value, known))
    return run.looked_up(value, known) or Expression(text)


def _slice(run: LibraryInterpreter, value: Value, node: ast.Subscript, frame: Frame) -> Value:
    assert isinstance(node.slice, ast.Slice)
    ends: list[Any] = [
        None if one is None else plain(run.evaluate(one, frame))
        for one in (node.slice.lower, node.slice.upper, node.slice.step)
    ]
    if isinstance(value, Items):
        is_known = ends[2] != 0 and all(one is None or isinstance(one, int) for one in ends)
        chosen = value.items[slice(*ends)] if is_known else []
        if not chosen and any(is_module(one) for _, one in value.items):  # of a loop, perhaps, which is followed once
            chosen, is_known = [(name, either(one, NONE)) for name, one in value.items], True
        if is_known:
            return Items(chosen, is_module=value.is_module)
    known = computed(operator.getitem, plain(value), slice(*ends)) if NOT_KNOWN not in ends else NOT_KNOWN
    return Expression(f"{value.text}[{ast.unparse(node.slice)}]", known)


def _walrus(run: LibraryInterpreter, node: ast.NamedExpr, frame: Frame) -> Value:
    value = run.evaluate(node.value, frame)
    run.assign(node.target, value, frame)
    return value


def _yield(run: LibraryInterpreter, node: ast.Yield | ast.YieldFrom, frame: Frame) -> Value:
    value = run.evaluate(node.value, frame) if node.value is not None else NONE
    given = [value] if isinstance(node, ast.Yield) else run.turns(value)
    frame.yielded += [either(one, NONE) if run.in_doubt else one for one in given]
    return NONE


def _call(run: LibraryInterpreter, node: ast.Call, frame: Frame) -> Value:
    arguments, named = _arguments(run, node, frame)
    name = super_attribute(node.func)
    if name:
        found = run.call_super(name, frame, arguments, named)
        return found if found is not None else NONE
    if isinstance(node.func, ast.Attribute):
        holder = run.evaluate(node.func.value, frame)
        done = _method(run, holder, node, arguments, named, frame)
        if done is not None:
            return done
        function = run.attribute(holder, node.func.attr)
        if isinstance(function, Expression) and _may_change(holder, node.func.attr):
            run.not_followed([holder], ast.unparse(node))
        elif isinstance(holder, Expression) and node.func.attr in _REGISTERING:
            run.given_to_unknown += 1
            run.may_be_module(node.func.value, node, frame)
    else:
        function = run.evaluate(node.func, frame)
        if isinstance(function, External) and function.name.startswith("builtins."):
            done = _builtin(run, function.name, node, arguments, frame)
            if done is not None:
                return done
    texts = (*(one.text for one in arguments), *(f"{key}={one.text}" for key, one in sorted(named.items())))
    shown = one_text(texts, ", ")
    return run.call(function, arguments, named, f"{function.text}({shown})")


def _arguments(run: LibraryInterpreter, node: ast.Call, frame: Frame) -> tuple[list[Value], dict[str, Value]]:
    arguments: list[Value] = []
    for one in node.args:
        if isinstance(one, ast.Starred):
            listed = run.evaluate(one.value, frame)
            arguments += [item for _, item in listed.items] if isinstance(listed, Items) else []
        else:
            arguments.append(run.evaluate(one, frame))
    named: dict[str, Value] = {}
    for keyword in node.keywords:
        value = run.evaluate(keyword.value, frame)
        if keyword.arg is not None:
            named[keyword.arg] = value
        elif (spread := mapping(value)) is not None:
            named |= dict(spread.items)
    return arguments, named


def _method(
    run: LibraryInterpreter,
    holder: Value,
    node: ast.Call,
    arguments: list[Value],
    named: dict[str, Value],
    frame: Frame,
) -> Value | None:
    """The calls of methods that change what a module holds, or that give a configuration or a model of a class."""
    assert isinstance(node.func, ast.Attribute)
    method = node.func.attr
    if (owner := run.owner_of_held(node.func.value, frame)) is not None and method not in (
        "items",
        "keys",
        "values",
        "get",
    ):
        return run.not_followed([owner], ast.unparse(node))
    if method in _SAME and (isinstance(holder, HeldTensor) or is_module(holder)):
        return holder
    if not arguments and (held := call_on_tree(holder, method)) is not None:
        return held
    if method == "get_submodule" and arguments and (part := submodule(holder, plain(arguments[0]))) is not None:
        return part
    if method == "apply" and arguments and isinstance(modules := call_on_tree(holder, "modules"), Items):
        _apply(run, arguments[0], modules, node, run.place(node, frame))
        return holder
    if isinstance(holder, Items) and not holder.is_mapping:
        if method == "clear":
            holder.clear(in_doubt=run.in_doubt)
            return NONE
        return _change_items(holder, method, [one if not run.in_doubt else either(NONE, one) for one in arguments])
    if (items := mapping(holder)) is not None:
        return _of_mapping(items, method, arguments, in_doubt=run.in_doubt)
    if isinstance(holder, Layer) or (isinstance(holder, ObjectValue) and not is_configuration(holder)):
        return _register(run, holder, method, arguments, named, run.place(node, frame))
    instance = arguments[0] if arguments else None
    begins = method == "__init__" or (method == POST_INIT and instance is not None and is_configuration(instance))
    if isinstance(holder, ClassValue) and isinstance(instance, ObjectValue) and begins:
        start = next((n for n, one in enumerate(instance.ancestors) if one is holder), None)
        if start is not None:
            run.initialise(instance, start, arguments[1:], named, method)
        return NONE
    if isinstance(holder, External) and method == "__init__" and isinstance(instance, ObjectValue):
        run.initialise(replace(instance, ancestors=Ancestors((holder,))), 0, arguments[1:], named)
        return NONE
    made = of_text(holder, method, arguments, named)
    return made if made is not None else run.method(holder, method, arguments, named)


def _apply(run: LibraryInterpreter, function: Value, modules: Items, node: ast.Call, place: CodePlace) -> None:
    """Call a function for all modules, and for the attributes of which nobody knows whether they are some."""
    text = ast.unparse(node)
    for _, one in reversed(modules.items):
        run.call(function, [one], {}, text)
        attributes = one.attributes if isinstance(one, ObjectValue) else {}
        for name, value in [*attributes.items()]:
            if isinstance(value, Expression) and not value.is_known:
                before = run.given_to_unknown
                run.call(function, [value], {}, text)
                if run.given_to_unknown > before:
                    layers.may_be_module(one, name, f"{value.text}, {text}", place)


def _may_change(holder: Value, method: str) -> bool:
    """Whether a method of a module that is not followed may change what the module holds."""
    is_own = isinstance(holder, ObjectValue) and method in holder.attributes  # `self.act(x)`
    return is_module(holder) and not is_own and method not in LEAVE_MODULES


def _change_items(holder: Items, method: str, arguments: list[Value]) -> Value | None:
    number = str(len(holder.items))
    if method == "append" and arguments:
        holder.add([(number, arguments[0])])
        return NONE
    if method == "insert" and len(arguments) == 2:
        holder.add([(number, arguments[1])])
        return NONE
    if method == "extend" and arguments and isinstance(arguments[0], Items):
        holder.add(arguments[0].items)
        return NONE
    if method == "add_module" and len(arguments) == 2:
        holder.add([(key_text(arguments[0]), arguments[1])])
        return NONE
    return None


def _of_mapping(holder: Items, method: str, arguments: list[Value], *, in_doubt: bool) -> Value | None:
    if method == "update" and arguments and (more := mapping(arguments[0])) is not None:
        holder.add((name, either(NONE, one) if in_doubt else one) for name, one in more.items)
        return NONE
    if method == "pop" and arguments and holder.is_module:
        return holder.take(key_text(arguments[0]), in_doubt=in_doubt)
    if method == "clear":
        holder.clear(in_doubt=in_doubt)
        return NONE
    if method == "items":
        return pairs_of(holder.items)
    if method == "values":
        return sequence(one for _, one in holder.items)
    if method in ("get", "pop") and arguments:
        found = next((one for name, one in holder.items if name == key_text(arguments[0])), None)
        if found is not None:
            return found
        return arguments[1] if len(arguments) > 1 else NONE
    return None


_REGISTERING = ("register_buffer", "register_parameter", "add_module", "register_module")


def _register(
    run: LibraryInterpreter,
    holder: ObjectValue | Layer,
    method: str,
    arguments: list[Value],
    named: dict[str, Value],
    place: CodePlace,
) -> Value | None:
    if method not in _REGISTERING:
        return None
    value = arguments[1] if len(arguments) > 1 else named.get("tensor", named.get("module", named.get("param", NONE)))
    name = arguments[0] if arguments else named.get("name", NONE)
    if method == "register_buffer":
        flag = arguments[2] if len(arguments) > 2 else named.get("persistent", layers.TRUE)
        persistent, is_empty = truth(flag), plain(value) is None
        if persistent is False or (is_empty and not is_any_name(name)):
            if isinstance(holder, ObjectValue):
                holder.attributes[key_text(name)] = EMPTY_BUFFER if is_empty and persistent is True else value
            return NONE
        value = layers.held(value, persistent=persistent)
    run.give_by(holder, name, value, place)
    return NONE


def _builtin(run: LibraryInterpreter, name: str, node: ast.Call, arguments: list[Value], frame: Frame) -> Value | None:
    if name == "builtins.getattr" and len(arguments) > 1:
        word = plain(arguments[1])
        if not isinstance(word, str):
            return Expression(f"getattr({arguments[0].text}, {arguments[1].text})")
        if isinstance(arguments[0], ObjectValue) and len(arguments) > 2 and not run.has(arguments[0], word):
            return arguments[2]
        return run.attribute(arguments[0], word)
    if name == "builtins.setattr" and len(arguments) == 3:
        run.give_by(arguments[0], arguments[1], arguments[2], run.place(node, frame))
        return NONE
    if name == "builtins.delattr" and len(arguments) == 2 and isinstance(arguments[0], ObjectValue):
        word = plain(arguments[1])
        names = [word] if isinstance(word, str) else [*arguments[0].slots]
        run.take_away(arguments[0], names, in_doubt=not isinstance(word, str))
        return NONE
    if name == "builtins.hasattr" and len(arguments) == 2 and isinstance(arguments[0], External):
        return Expression(
            f"hasattr({arguments[0].text}, {arguments[1].text})", True
        )  # that is asked of older releases
    if name == "builtins.hasattr" and len(arguments) == 2 and isinstance(arguments[0], ObjectValue):
        known = run.has(arguments[0], key_text(arguments[1]))
        return Expression(f"hasattr({arguments[0].text}, {arguments[1].text})", known)
    if name == "builtins.isinstance" and len(arguments) == 2:
        value = plain(arguments[0])
        if (known_module := is_instance(arguments[0], arguments[1])) is not None:
            return Expression(f"isinstance({arguments[0].text}, {arguments[1].text})", known_module)
        if isinstance(arguments[1], External) and arguments[1].name == "builtins.dict":
            known = isinstance(arguments[0], Items) and arguments[0].is_mapping
            if value is not NOT_KNOWN or isinstance(arguments[0], (ObjectValue, Items)):
                return Expression("isinstance", known or isinstance(value, dict))
        return Expression(f"isinstance({arguments[0].text}, {arguments[1].text})")
    return None


def _container(name: str, arguments: list[Value]) -> Items:
    given = arguments[0] if len(arguments) == 1 else None
    if isinstance(given, Items) and (name.endswith("List") or given.is_mapping):
        return Items(given.items, is_module=True, is_mapping=given.is_mapping)
    if isinstance(given, Items) and name.endswith("Dict"):
        return Items(_pairs(given), is_module=True, is_mapping=True)
    if isinstance(given, Expression) and given is not NONE:
        return Items([("*", given)], is_module=True)
    is_mapping = name.endswith("Dict")
    return Items([(str(number), one) for number, one in enumerate(arguments)], is_module=True, is_mapping=is_mapping)


def _pairs(given: Items) -> list[tuple[str, Value]]:
    """The entries of a mapping that is given as pairs."""
    pairs = [one.items for _, one in given.items if isinstance(one, Items) and len(one.items) == 2]
    return [(key_text(key[1]), value[1]) for key, value in pairs]


_Reader = Callable[[LibraryInterpreter, Any, Frame], Value]
_READERS: Mapping[type[ast.expr], _Reader] = {
    ast.Constant: lambda run, node, frame: Expression(repr(node.value), node.value),
    ast.Name: lambda run, node, frame: run.name(node.id, frame),
    ast.Attribute: lambda run, node, frame: run.attribute(run.evaluate(node.value, frame), node.attr),
    ast.List: _sequence,
    ast.Tuple: _sequence,
    ast.Set: _set,
    ast.Dict: _dict,
    ast.BinOp: lambda run, node, frame: _combined(
        node.op, run.evaluate(node.left, frame), run.evaluate(node.right, frame), node
    ),
    ast.Compare: _compare,
    ast.BoolOp: _bool,
    ast.UnaryOp: _unary,
    ast.IfExp: _choice,
    ast.JoinedStr: _joined,
    ast.ListComp: _comprehension,
    ast.SetComp: _comprehension,
    ast.GeneratorExp: _comprehension,
    ast.DictComp: _dict_comprehension,
    ast.Subscript: _subscript,
    ast.NamedExpr: _walrus,
    ast.Yield: _yield,
    ast.YieldFrom: _yield,
    ast.Lambda: lambda run, node, frame: FunctionValue(frame.path, node, frame.above, closure=dict(frame.names)),
    ast.Call: _call,
}


class Interpreter(LibraryInterpreter):
    """Follows bodies of one tree with all that decides names and shapes."""

    def evaluate(self, node: ast.expr, frame: Frame) -> Value:
        """The value of an expression."""
        spend(1)
        reader = _READERS.get(type(node))
        return reader(self, node, frame) if reader is not None else Expression(ast.unparse(node))

    def call_external(self, name: str, arguments: list[Value], named: dict[str, Value], text: str) -> Value:
        """The value of a call of something that is not of the tree."""
        if name in layers.OF_PARAMETERS:
            made = _container(name, arguments)
            held = [
                (key, layers.held(one, persistent=True) if isinstance(one, HeldTensor) else one)
                for key, one in made.items
            ]
            return replace(made, items=held)
        if name in layers.CONTAINERS:
            return _container(name, arguments)
        if name == "torch.nn.Module":
            return ObjectValue(
                ClassValue("", "Module", 1, "class Module: ...", ()), Ancestors((External(name),)), name
            )
        if name in layers.PARAMETERS:
            return layers.held(arguments[0] if arguments else named.get("data", NONE), persistent=True)
        if name in layers.BUFFERS:
            persistent = truth(arguments[1] if len(arguments) > 1 else named.get("persistent", layers.TRUE))
            return layers.held(arguments[0] if arguments else NONE, persistent=persistent)
        if name.startswith("torch.nn.utils") and name.endswith("weight_norm") and arguments:
            old = "parametrizations" not in name
            return layers.weight_normed(arguments[0], old) if isinstance(arguments[0], Layer) else arguments[0]
        if name.startswith("torch.nn."):
            made_layer = layers.layer(name, arguments, named)
            if made_layer is not None:
                return made_layer
        if (shape := layers.tensor_shape(name, arguments, named)) is not None:
            return HeldTensor(shape)
        if name in ITERATED and "repeat" not in named:
            return iterated(self, name, arguments, named)
        if name in ("builtins.dict", "collections.OrderedDict"):
            given = arguments[0] if arguments and isinstance(arguments[0], Items) else Items([])
            return Items([*(given.items if given.is_mapping else _pairs(given)), *named.items()], is_mapping=True)
        if name in ("builtins.list", "builtins.tuple") and arguments and isinstance(arguments[0], Items):
            return arguments[0]
        if name == "builtins.str" and arguments and not is_any_name(arguments[0]):
            return Expression(text, computed(str, plain(arguments[0])), name=key_text(arguments[0]))
        if name in COMPUTED and not named:
            found = computed(COMPUTED[name], *map(plain, arguments))
            if found is not NOT_KNOWN or name in _COUNTING:
                return Expression(text.replace("builtins.", ""), found, is_count=True)
        if name == "functools.partial" and arguments:
            return Partial(arguments[0], tuple(arguments[1:]), named)
        if name == "builtins.map" and len(arguments) == 2:
            return sequence([self.call(arguments[0], [one], {}, text) for one in self.turns(arguments[1])])
        if name.startswith("copy.") and arguments:
            copied = arguments[0]
            is_config = isinstance(copied, ObjectValue) and is_configuration(copied)
            return self.copied(copied) if isinstance(copied, ObjectValue) and is_config else copied
        handed = [*arguments, *named.values()]
        if any(map(is_module, handed)) and not name.startswith(_ONLY_LOOK):
            return self.not_followed(handed, text)
        is_of_layers = name.startswith("torch.nn.") and not name.startswith(_ONLY_LOOK)
        may_be_module = is_of_layers or not name.startswith(_NO_MODULES)
        return Expression(text.replace("builtins.", ""), may_be_module=may_be_module)
