"""Modularize random flat models, made by converting random modular files, and check that each converts back.

`python utils/fuzz_modularize.py --programs 2000 --seed 1` prints the number of each outcome, and the programs that stay.
`--first N` begins with another program of the same seed.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from pathlib import Path


sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.oracle.inverse import Return, go_back  # noqa: E402
from tests.oracle.programs import program_of  # noqa: E402


def main() -> int:
    """Try the programs; the exit code is 1 if one does not convert back."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", type=int, default=100)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    outcomes: Counter[Return] = Counter()
    for number in range(options.first, options.first + options.programs):
        with tempfile.TemporaryDirectory() as folder:
            outcome, reason = go_back(program_of(options.seed, number), Path(folder) / "tool")
        outcomes[outcome] += 1
        if outcome is Return.STAYED:
            print(f"program {number} does not come back: {reason}", flush=True)
    for outcome, count in outcomes.items():
        print(f"{count:>6} {outcome.value}")
    return int(outcomes[Return.STAYED] > 0)


if __name__ == "__main__":
    raise SystemExit(main())
