"""Started by `test_paged_batches.py`: tokens of `generate_batch` of a model that two processes share."""

import json
import sys

from modular_converter.parallel import parallelize
from modular_converter.parallel.errors import PlanError
from tests.parallel.inference.test_paged_batches import PROMPTS, made, tokens


def main(form):
    given = {"inference": True} if form == "inference" else {"layout": "tp2"}
    found = tokens(parallelize(made("llama"), **given), do_sample=False)
    try:
        parallelize(made("llama"), layout="fsdp2").generate_batch(PROMPTS)
    except PlanError as error:
        print(json.dumps([found, str(error)[-13:]]), flush=True)


main(sys.argv[1])
