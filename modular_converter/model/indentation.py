"""Classes that are indented by tabs or by another number of spaces, brought to four spaces."""

from __future__ import annotations

import libcst as cst


class _Reindent(cst.CSTTransformer):
    def leave_IndentedBlock(
        self, original_node: cst.IndentedBlock, updated_node: cst.IndentedBlock
    ) -> cst.IndentedBlock:
        return updated_node.with_changes(indent=None)


def with_standard_indentation(text: str, indentation: str) -> str:
    """The text with the indentation given for each level; the insides of strings stay as they are.

    Raises:
        SyntaxError: libcst does not know the syntax, although Python does.
    """
    try:
        module = cst.parse_module(text)
    except cst.ParserSyntaxError as error:
        raise SyntaxError(error.message) from None
    return module.visit(_Reindent()).with_changes(default_indent=indentation).code
