"""The signature of an override: the child's, completed from the parent's."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from modular_converter.convert.inherit.blocks import Block
from modular_converter.convert.source.lexer import code_only


SUPER_KWARGS = "super_kwargs"


def merge_signature(child: Block, parent: Block) -> str:
    """The header `def name(…) -> …:` of an override.

    It is the child's. Without a return annotation it takes the parent's; `**super_kwargs` stands for the parent's
    parameters, which the child's override and extend.
    """
    node, inherited = child.function, parent.function
    takes_all = node.args.kwarg is not None and node.args.kwarg.arg == SUPER_KWARGS
    if not takes_all and (node.returns is not None or inherited.returns is None):
        return child.header
    arrow = _returns(child) or _returns(parent)
    if not takes_all:
        colon = code_only(child.header).rindex(":")
        return f"{child.header[:colon].rstrip()}{arrow}{child.header[colon:]}"
    opening = child.header[: child.header.index("(") + 1]
    parameters = _text_between_parentheses(parent) if _has_only_self(node.args) else _merged_parameters(child, parent)
    return f"{opening}{parameters}){arrow}:\n"


def _returns(block: Block) -> str:
    returns = block.function.returns
    return f" -> {block.segment(returns)}" if returns is not None else ""


def _has_only_self(arguments: ast.arguments) -> bool:
    named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    return arguments.vararg is None and all(argument.arg == "self" for argument in named)


def _text_between_parentheses(block: Block) -> str:
    """The parameters as written, with their comments."""
    code = code_only(block.header)
    start = code.index("(") + 1
    depth, position = 1, start
    while depth:
        depth += (code[position] in "([{") - (code[position] in ")]}")
        position += 1
    return block.header[start : position - 1]


@dataclass(frozen=True)
class _Parameters:
    """The parameters of a function by kind: name -> text with annotation and default, and a comma if one follows."""

    positional_only: dict[str, str]
    ordinary: dict[str, str]
    variadic: dict[str, str]
    keyword_only: dict[str, str]
    keywords: dict[str, str]

    def __contains__(self, name: str) -> bool:
        kinds = (self.positional_only, self.ordinary, self.variadic, self.keyword_only, self.keywords)
        return any(name in kind for kind in kinds)

    def overridden(self, by: _Parameters) -> _Parameters:
        """These parameters, overridden in place and extended; the own `**kwargs` stays."""
        keyword_only = {**self.keyword_only, **by.keyword_only}
        keyword_only.update({name: text for name, text in by.ordinary.items() if name in self.keyword_only})
        ordinary = dict(self.ordinary)
        ordinary.update({name: text for name, text in by.ordinary.items() if name in ordinary or name not in self})
        return _Parameters(
            {**self.positional_only, **by.positional_only},
            ordinary,
            by.variadic or self.variadic,
            keyword_only,
            self.keywords,
        )

    def __str__(self) -> str:
        pieces = [*self.positional_only.values(), *(["/"] if self.positional_only else [])]
        pieces += [*self.ordinary.values(), *self.variadic.values()]
        pieces += [*(["*"] if self.keyword_only and not self.variadic else []), *self.keyword_only.values()]
        pieces += self.keywords.values()
        # A comma behind the last parameter makes the formatter put each on a line of its own.
        trailing = "," if pieces and pieces[-1].endswith(",") else ""
        return ", ".join(piece.removesuffix(",") for piece in pieces) + trailing


def _merged_parameters(child: Block, parent: Block) -> str:
    return str(_parameters(parent).overridden(_parameters(child)))


def _parameters(block: Block) -> _Parameters:
    arguments = block.function.args

    def text(argument: ast.arg, default: ast.expr | None = None, stars: str = "") -> str:
        written = stars + block.segment(argument)
        if default is not None:
            written += f"{' = ' if argument.annotation else '='}{block.segment(default)}"
        return written + ("," if block.comma_follows(default or argument) else "")

    positional = [*arguments.posonlyargs, *arguments.args]
    defaults = [None] * (len(positional) - len(arguments.defaults)) + list(arguments.defaults)
    texts = [(argument.arg, text(argument, default)) for argument, default in zip(positional, defaults)]
    split = len(arguments.posonlyargs)
    return _Parameters(
        dict(texts[:split]),
        dict(texts[split:]),
        {arguments.vararg.arg: text(arguments.vararg, stars="*")} if arguments.vararg else {},
        {argument.arg: text(argument, value) for argument, value in zip(arguments.kwonlyargs, arguments.kw_defaults)},
        {arguments.kwarg.arg: text(arguments.kwarg, stars="**")} if arguments.kwarg else {},
    )
