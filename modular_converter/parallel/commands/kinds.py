"""The commands for all kinds of plans: ``derive``, ``verify`` and ``committed``."""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from modular_converter.commands.options import progress
from modular_converter.parallel.commands.common import (
    derived_of,
    form_option,
    overrides_of,
    plan_text,
    quiet_library,
    ranks_option,
    reports_errors,
    set_option,
)
from modular_converter.parallel.errors import PlanError
from modular_converter.parallel.plans.pipeline_plan import PipelinePlan, library_text
from modular_converter.parallel.plans.plan import Plan
from modular_converter.parallel.plans.text_checks import placed, read_plan


if TYPE_CHECKING:
    from modular_converter.parallel.proof.judge import Verdict
    from modular_converter.parallel.proof.prove import Derived
    from modular_converter.parallel.tiny.build import Small

kind_option = click.option(
    "--kind",
    type=click.Choice(["tensor", "expert", "pipeline"]),
    default="tensor",
    show_default=True,
    help="What is divided: tensors, experts, or layers into stages.",
)


@click.command("derive")
@click.argument("model")
@set_option
@click.option("--head", type=click.Choice(["base", "causal"]), default="base", show_default=True)
@form_option
@click.option("--unverified", is_flag=True, help="Print the plan even if it fails its check.")
@click.option(
    "--max-collectives", "limit", type=click.IntRange(0), metavar="N", help="The most collectives of a forward."
)
@kind_option
@reports_errors
def derive_command(
    model: str, settings: tuple[str, ...], head: str, form: str, unverified: bool, limit: int | None, kind: str
) -> None:
    """Print the plan of MODEL, checked on two ranks (a pipeline plan: in two stages) within this process."""
    if limit is not None and kind != "tensor":
        raise PlanError(f"--max-collectives counts those of tensor plans: leave it out with --kind {kind}")
    if kind == "pipeline":
        from modular_converter.parallel.pipeline.prove import verify_pipeline

        if form == "torch":
            raise PlanError(f"{model}: torch's parallelize_module has no pipeline plans; print it as text or json")
        small, inputs, chain = pipeline_derived(model, settings, head)
        verdict = verify_pipeline(small.model, chain, inputs)
        text = {"text": str(chain), "json": chain.to_json(), "transformers": library_text(chain)}[form]
        print_plan(model, text, verdict, unverified)
        return
    found = derived_of(model, settings, head) if kind == "tensor" else expert_derived(model, settings, head)
    if limit is not None:
        from modular_converter.parallel.choice.same_numbers import derived_with_numbers
        from modular_converter.parallel.proof.prove import restricted_to

        found = derived_with_numbers(restricted_to(found, limit))
    print_plan(model, plan_text(found, form), found.verdict, unverified)
    for hindrance in found.hindrances if kind == "tensor" else ():
        click.echo(f"modular-plan: {model}: {hindrance}", err=True)


def print_plan(model: str, text: str, verdict: Verdict, unverified: bool) -> None:
    """Print a plan, and the scope of its check on stderr. Exits with 1 if the check failed, unless ``unverified``."""
    if not verdict.passed:
        click.echo(f"modular-plan: {model}: {placed(verdict.layer, verdict.reason)}", err=True)
        if not unverified:
            sys.exit(1)
    for line in verdict.evidence.lines() if verdict.passed else ():
        click.echo(f"modular-plan: {model}: {line}", err=True)
    click.echo(text, nl=False)


@click.command()
@click.argument("model")
@click.argument("plan_file", required=False)
@set_option
@ranks_option
@click.option("--library", is_flag=True, help="Prove the plan through transformers' own loader, too.")
@click.option("--verbose", is_flag=True, help="Print the whole scope: sizes, kinds of layers, operators, weights.")
@click.option("--json", "as_json", is_flag=True, help="Print a line of JSON for each verdict, with its whole scope.")
@kind_option
@reports_errors
def verify(
    model: str,
    plan_file: str | None,
    settings: tuple[str, ...],
    ranks: int,
    library: bool,
    verbose: bool,
    as_json: bool,
    kind: str,
) -> None:
    """Prove the plan in PLAN_FILE (or the derived one) on gloo processes: outputs and parameter gradients.

    A pipeline plan runs stage by stage in this process instead; only the named tensors are handed over.
    """
    say = print_json if as_json else functools.partial(print_verdict, verbose=verbose)
    if kind == "pipeline":
        from modular_converter.parallel.pipeline.prove import verify_pipeline

        small, inputs, chain = pipeline_derived(model, settings, plan_file=plan_file)
        # Cut into ``ranks`` stages, and then in two between each two layers.
        sys.exit(not say(model, f"{ranks} stages", verify_pipeline(small.model, chain, inputs, ranks)))
    from modular_converter.parallel.choice.same_numbers import with_numbers
    from modular_converter.parallel.plans.resolve import resolve
    from modular_converter.parallel.proof.on_ranks import RankPool
    from modular_converter.parallel.proof.prove import prove
    from modular_converter.parallel.solve.cost import static_findings

    found, plan = plan_in_question(
        plan_file,
        lambda: derived_of(model, settings)
        if kind == "tensor"
        else expert_derived(model, settings, needed=not plan_file),
    )
    findings = []
    if kind == "tensor":
        findings = static_findings(found.trace, plan, resolve(plan, found.small.model).pieces, ranks)
    for line in findings:
        click.echo(line, err=as_json)
    passed = not findings
    with RankPool(ranks) as pool:
        for route in ["ours", "library"] if library else ["ours"]:
            name = "library loader" if route == "library" else "our application"
            with progress(f"{model}: proving the plan on {ranks} processes"):
                verdict = prove(found, plan, pool, route)
                verdict = verdict if route == "library" else with_numbers(verdict, found, plan, ranks)
            passed &= say(model, f"{ranks} ranks, {name}", verdict)
    sys.exit(not passed)


def print_verdict(model: str, how: str, verdict: Verdict, verbose: bool) -> bool:
    """Print a verdict and its scope, and return whether it passed."""
    state = "verified" if verdict.passed else f"refused: {placed(verdict.layer, verdict.reason)}"
    errors = f"outputs {verdict.output_error:.1e}, gradients {verdict.gradient_error:.1e}"
    click.echo(f"{model} on {how}: {state} ({errors})")
    for line in verdict.evidence.lines(verbose) if verdict.passed or verbose else ():
        click.echo(f"  {line}")
    return verdict.passed


def print_json(model: str, how: str, verdict: Verdict) -> bool:
    """Print a verdict with its whole scope as one line of JSON, and return whether it passed."""
    click.echo(json.dumps({"model": model, "on": how, **verdict.to_json()}))
    return verdict.passed


def plan_in_question(plan_file: str | None, derive: Callable[[], Derived]) -> tuple[Derived, Plan]:
    """What is derived, with the plan of a file, if one is named, in place of the derived one.

    Raises ``PlanError`` if the file has no plan, before anything is derived, or one that does not fit the model.
    """
    from modular_converter.parallel.plans.resolve import check_whole

    given = read_plan(plan_file, Plan) if plan_file else None
    found = derive()
    if given:
        check_whole(given, found.small.model)
    return found, given or found.plan


def expert_derived(model: str, settings: tuple[str, ...], head: str = "base", needed: bool = True) -> Derived:
    """Build and trace MODEL, derive its expert plan, and check the plan on threads, in all uses.

    Raises ``PlanError`` if the model cannot be built, or if a plan is ``needed`` and no experts can be sharded.
    """
    from modular_converter.parallel.proof.prove import Derived, Instance
    from modular_converter.parallel.solve.experts import derive_experts
    from modular_converter.parallel.trace.record import record

    target, small = _built(model, settings, head)
    trace = record(small.model, small.inputs, target.name)
    plan = derive_experts(trace)
    if needed and not plan.rules:
        reasons = "; ".join(f"{path}: {reason}" for path, reason in plan.whole)
        raise PlanError(f"{model}: no expert plan: {reasons or 'no module of stacked experts was run'}")
    options = overrides_of(settings)
    known = Instance(target, small, options)
    verdict = known.verdict(plan, 2)
    return Derived(target, small, trace, plan, known.subject, verdict, tuple(options.items()), "", known.in_use, known)


def pipeline_derived(
    model: str, settings: tuple[str, ...], head: str = "base", plan_file: str | None = None
) -> tuple[Small, dict[str, Any], PipelinePlan]:
    """The small model, its inputs (with an attention mask if it takes one), and the derived plan or the plan of a file.

    Raises ``PlanError`` with the reason if the model cannot be built, or is not a chain.
    """
    from modular_converter.parallel.pipeline.derive import pipeline_of_trace
    from modular_converter.parallel.proof.subject import with_mask
    from modular_converter.parallel.trace.record import record

    target, small = _built(model, settings, head)
    inputs = with_mask(small.model, small.inputs)
    if plan_file:
        return small, inputs, read_plan(plan_file, PipelinePlan)
    plan = pipeline_of_trace(record(small.model, inputs, target.name))
    if isinstance(plan, str):
        raise PlanError(f"{model}: no pipeline plan: {plan}")
    return small, inputs, plan


def _built(model: str, settings: tuple[str, ...], head: str) -> tuple[Any, Small]:
    from modular_converter.parallel.tiny.build import build, target_of

    quiet_library()
    target = target_of(model, head)
    return target, build(target, overrides_of(settings))


@click.command()
@click.argument("models", nargs=-1)
@click.option(
    "--kind", type=click.Choice(["expert", "pipeline"]), required=True, help="The kind of the library's plans."
)
@click.option("--library", is_flag=True, help="Run derived expert plans through transformers' own loader as well.")
@reports_errors
def committed(models: tuple[str, ...], kind: str, library: bool) -> None:
    """Compare the library's own expert or pipeline plans with derived ones, and run both.

    MODELS are model types, by default all that carry such a plan. The table goes to stdout as Markdown; it lists what
    differs or does not run. Exit code: 0 all the same and verified, 1 not.
    """
    from modular_converter.parallel.proof.on_ranks import RankPool
    from modular_converter.parallel.tables.committed import committed_types, compare_committed, comparison_table

    quiet_library()
    known = committed_types(kind)
    unknown = sorted(set(models) - set(known))
    if unknown:
        raise PlanError(f"{unknown[0]}: the library has no {kind} plan for this model type")
    with RankPool(2) as pool:
        rows = [compare_committed(kind, name, pool if library else None) for name in models or known]
    click.echo(comparison_table(kind, rows), nl=False)
    sys.exit(0 if all(row.outcome == "same" and "refused" not in row.committed + row.loader for row in rows) else 1)
