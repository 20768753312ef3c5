"""The forms in which ``derive`` prints a plan."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click


if TYPE_CHECKING:
    from modular_converter.parallel.proof.prove import Derived

form_option = click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json", "transformers", "torch"]),
    default="text",
    show_default=True,
    help="A plan file; base_model_tp_plan of transformers; parallelize_plan of torch's parallelize_module.",
)


def plan_text(found: Derived, form: str) -> str:
    """A derived plan in a form; for ``transformers``, rules that its loader cannot run are printed to stderr.

    Raises ``PlanFormatError`` if the form cannot express the plan; the message names the rules.
    """
    from modular_converter.parallel.plans.emit import loader_unsaid, to_library, torch_text

    if form == "torch":
        return torch_text(found.plan, found.small.model)
    if form == "transformers":
        entries = to_library(found.plan, found.small.model)
        for reason in loader_unsaid(found.plan, found.small.model):
            click.echo(f"modular-plan: {found.plan.model}: {reason}", err=True)
        return json.dumps(entries, indent=4) + "\n"
    return found.plan.to_json() if form == "json" else str(found.plan)
