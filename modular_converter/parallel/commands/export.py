"""``modular-plan export``: a derived plan in the form that another tool takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from modular_converter.parallel.commands.common import derived_of, ranks_option, reports_errors, set_option, write_text


if TYPE_CHECKING:
    from modular_converter.parallel.exports.export import Export, Memory

NAMES = ("transformers", "accelerate", "torch", "vllm", "sglang", "torchtitan", "deepspeed")


@click.command("export")
@click.argument("model")
@click.option("--to", "name", type=click.Choice(NAMES), required=True, help="The tool that takes the plan.")
@set_option
@click.option("--head", type=click.Choice(["base", "causal"]), default="base", show_default=True)
@ranks_option
@click.option("--output", metavar="FILE", help="Write the plan to FILE instead of stdout.")
@click.option("--unverified", is_flag=True, help="Do not run the plan through the tool's own code.")
@reports_errors
def export_command(
    model: str, name: str, settings: tuple[str, ...], head: str, ranks: int, output: str | None, unverified: bool
) -> None:
    """Write the plan of MODEL for another tool, and run it through the tool's own loader.

    What the tool cannot say, or does not run as the whole model, stays whole: each such weight is named on stderr with the
    reason, and the memory that this costs on each of --ranks devices.

    \b
    Exit code: 0 written, 2 nothing of the plan can be handed over.
    """
    from modular_converter.parallel.exports.export import TOOLS, export
    from modular_converter.parallel.proof.on_processes import RankPool

    derived = derived_of(model, settings, head)
    with RankPool(2) as pool:
        found = export(derived, TOOLS[name], ranks, None if unverified else pool)
    for line in lines(found, ranks):
        click.echo(f"modular-plan: {model}: {line}", err=True)
    if output:
        write_text(output, found.text)
    else:
        click.echo(found.text, nl=False)


def lines(found: Export, ranks: int) -> list[str]:
    """What to know about an export: its place, its proof, what stays whole, and the memory that this costs."""
    tool = found.vocabulary
    notes = [f"for {tool.name} {tool.version}: {tool.use}"]
    runner = "transformers' loader" if tool.route == "library" else f"the code of {tool.name}"
    proven = f"outputs and gradients equal the whole model's, by {runner} on {found.proven}"
    notes.append(proven if found.proven else f"not run by the code of {tool.name}")
    notes += [f"left whole: {pattern}: {reason}" for pattern, reason in found.lost.items()]
    own, full = found.collectives
    notes += (
        [f"{own} collectives in a forward of the small instance, {full} with the derived plan"] if own != full else []
    )
    return [*notes, memory_in_words(found.memory, ranks)]


def memory_in_words(memory: Memory, ranks: int) -> str:
    """The bytes of weights on a device, beside those of the derived plan and of the whole model."""
    from modular_converter.parallel.tables.summary import amount

    more = memory.exported - memory.full
    beside = f"{amount(more)} more than the derived plan" if more else "the same as the derived plan"
    return (
        f"{amount(memory.exported)} of weights on each of {ranks} devices, {beside}; {amount(memory.whole)} whole"
        f" (16 bits, {memory.sizes})"
    )
