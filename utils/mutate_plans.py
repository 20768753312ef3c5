"""Try random wrong plans on the proof: `python utils/mutate_plans.py --plans 9 llama bert`.

Each derived plan is changed at random (`tests/parallel/random_plans.py`): a rule is dropped, a style or a dimension
changed, an attribute lost, a sum added or missing. A changed plan that is verified all the same must change nothing,
which outputs and gradients of a larger instance show, with other heads, widths and depth. The exit code is 1 if one
does. `--write` puts the figures into docs/figures/plans.md.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any


ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
os.environ.setdefault("OMP_NUM_THREADS", "1")

from marked_pages import write_part  # noqa: E402

from tests.parallel.random_plans import deviation, is_same, larger, random_plan  # noqa: E402


# Text, encoders and decoders, experts, states, vision, audio and both; each of another arithmetic.
MODELS = (
    "llama bert gpt2 t5 mixtral gemma2 vit clip whisper deberta-v2 qwen2_moe mamba falcon bart switch_transformers"
    " bloom opt gpt_neox phi phi3 qwen2 qwen3 gemma3_text mistral olmo2 cohere stablelm starcoder2 gptj codegen"
    " roberta albert electra distilbert mpnet xlm-roberta roformer funnel longformer big_bird led pegasus mbart"
    " m2m_100 marian deit beit swin dinov2 convnext wav2vec2 hubert speech_to_text mamba2 jamba bamba falcon_h1"
    " deepseek_v3 granitemoe olmoe nemotron dbrx"
)


def main() -> int:
    """Try the plans; the exit code is 1 when a wrong one is verified."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", help="model types (62 of many kinds)")
    parser.add_argument("--plans", type=int, default=9, help="changed plans for each model type (9)")
    parser.add_argument("--seed", type=int, default=0, help="of the random choices")
    parser.add_argument("--write", action="store_true", help="put the figures into docs/figures/plans.md")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    counts: Counter[str] = Counter()
    types = 0
    for name in options.models or MODELS.split():
        start = time.process_time()
        found = Counter(tried(name, options.plans, options.seed))
        counts += found
        types += bool(found)
        said = ", ".join(f"{number} {what}" for what, number in sorted(found.items()))
        print(f"{name}: {said or 'no plan to change'} ({time.process_time() - start:.1f} s)", flush=True)
    text = figures(counts, types, options.seed)
    print(text)
    if options.write:
        write_part(ROOT / "docs" / "figures" / "plans.md", "mutations", text)
    return 1 if counts[WRONG] else 0


REFUSED, HARMLESS, LOUD, UNKNOWN, WRONG = (
    "refused",
    "verified and the same on a larger instance",
    "verified, an error on a larger instance",
    "verified, without a larger instance",
    "verified and WRONG on a larger instance",
)


def tried(name: str, number: int, seed: int) -> Iterator[str]:
    """The outcomes of changed plans of a model type; wrong plans that pass are printed."""
    from transformers.utils import logging

    from modular_converter.parallel.errors import PlanError
    from modular_converter.parallel.proof.on_ranks import check_on_threads
    from modular_converter.parallel.proof.prove import derive_model, refusal
    from modular_converter.parallel.tiny.build import target_of

    logging.set_verbosity_error()
    try:
        derived = derive_model(target_of(name), uses=True)
    except PlanError as error:
        print(f"{name}: {str(error).splitlines()[0][:200]}")
        return
    if not derived.verdict.passed or not derived.plan.rules:
        return
    big = larger(derived.target, derived.small, derived.plan)
    choice = random.Random(f"{seed} {name}")
    seen: set[Any] = set()
    while len(seen) < number:
        what, plan = random_plan(derived.plan, derived.small.model, choice)
        if str(plan) in seen:
            number -= 1  # a plan of few rules has few changes
            continue
        seen.add(str(plan))
        verdict = check_on_threads(derived.subject, plan, 2)
        if not verdict.passed or refusal(derived.variants, plan, 2) is not None:
            yield REFUSED
            continue
        found = deviation(big, plan) if big else None
        state = UNKNOWN if big is None or found is None else HARMLESS if is_same(big, found) else WRONG
        state = LOUD if isinstance(found, str) else state
        if state != HARMLESS:
            print(f"{name}: {state} ({found}): {what}", flush=True)
        yield state


def figures(counts: Counter[str], types: int, seed: int) -> str:
    """The figures as text of the page."""
    said = ", ".join(f"{counts[what]} {what}" for what in (REFUSED, HARMLESS, LOUD, UNKNOWN, WRONG))
    return f"{counts.total()} changed plans of {types} model types (seed {seed}): {said}."


if __name__ == "__main__":
    sys.exit(main())
