"""Time grows with the size of the input: counted in calls, parsed characters and characters that methods of texts pass over.

Each case is a file with many things of one kind. Four times as many may take little more than four times the work.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from types import FrameType

import pytest

from modular_converter.convert.batch import Run
from modular_converter.convert.examine.faults import base_faults
from modular_converter.convert.schedule import Schedule
from modular_converter.findings import Conversion
from modular_converter.settings.load import profile_settings


SETTINGS = replace(profile_settings(), formatter="none")
FEW, MANY = 60, 240
MOST_GROWTH = 1.6
"""Times the growth of the input. Sorting adds a tenth or two; what is quadratic has 4 in the end."""
PASSING = frozenset({"split", "splitlines", "replace", "find", "index", "count", "encode", "translate", "strip"})

BASE = "class BaseMLP:\n    def __init__(self, config):\n        self.up = 1\n\n    def forward(self, x):\n        return x\n"
IMPORT = "from ..base.modeling_base import BaseMLP\n\n\n"
HEIR = IMPORT + "class NewMLP(BaseMLP):\n    pass\n\n\n"
INIT = IMPORT + "class NewMLP(BaseMLP):\n    def __init__(self, config):\n        super().__init__(config)\n"
METHOD = IMPORT + "class NewMLP(BaseMLP):\n    def forward(self, x):\n"


def lines(text: str, numbers: Iterable[int]) -> str:
    return "".join(text.replace("{}", str(number)) for number in numbers)


def assigned(n: int) -> str:
    return "class BaseMLP:\n    def __init__(self, config):\n" + lines("        self.a{} = {}\n", range(n))


def many_classes(n: int) -> str:
    return "from ..base.modeling_base import " + ", ".join(f"Base{i}" for i in range(n)) + "\n\n\n"


CASES: dict[str, Callable[[int], tuple[str, str]]] = {
    "removed": lambda n: (assigned(n), INIT + lines("        del self.a{}\n", range(n))),
    "removed in vain": lambda n: (BASE, INIT + lines("        del self.b{}\n", range(n))),
    "assigned again": lambda n: (assigned(n), INIT + lines("        self.a{} = 0\n", range(n))),
    "unknown in __all__": lambda n: (BASE, f"{HEIR}__all__ = {[f'Unknown{i}' for i in range(n)]}\n"),
    "unused": lambda n: (BASE, HEIR + lines("def f{}(x):\n    return x\n\n\n", range(n))),
    "statements without effect": lambda n: (BASE, HEIR + lines("if x{}:\n    y{} = 1\n", range(n))),
    "undefined": lambda n: (BASE, f"{METHOD}        return [{', '.join(f'u{i}' for i in range(n))}]\n"),
    "one name on one line": lambda n: (BASE, f"{METHOD}        return [{', '.join(['u'] * n)}]\n"),
    "decorators": lambda n: (BASE, IMPORT + "@mark\n" * n + "class NewMLP(BaseMLP):\n    pass\n"),
    "decorators of a method": lambda n: (
        BASE,
        METHOD.replace("    def", "    @mark\n" * n + "    def") + "        pass\n",
    ),
    "super() in expressions": lambda n: (BASE, METHOD + "        y = super().forward(x) + 1\n" * n),
    "comments that ignore": lambda n: (BASE, HEIR + "# modular: ignore[MC307]\n" * n),
    "descendants": lambda n: (BASE, HEIR + lines("class New{}(NewMLP):\n    pass\n\n\n", range(n))),
    "chain of classes": lambda n: (
        BASE,
        HEIR + "".join(f"class New{i}(New{i - 1 if i else 'MLP'}):\n    pass\n\n\n" for i in range(n)),
    ),
    "chain of parents": lambda n: (
        BASE + "".join(f"\n\nclass Base{i}(Base{i - 1 if i else 'MLP'}):\n    x{i} = 1\n" for i in range(n)),
        f"from ..base.modeling_base import Base{n - 1}\n\n\nclass New{n - 1}(Base{n - 1}):\n    pass\n",
    ),
    "chain of functions": lambda n: (
        BASE,
        f"{METHOD}        return f0(x)\n\n\n"
        + "".join(f"def f{i}(x):\n    return f{i + 1}(x)\n\n\n" for i in range(n)),
    ),
    "parents": lambda n: (
        lines("class Base{}:\n    x = {}\n\n\n", range(n)),
        many_classes(n) + lines("class New{}(Base{}):\n    pass\n\n\n", range(n)),
    ),
    "methods": lambda n: (
        "class BaseMLP:\n" + lines("    def m{}(self, x):\n        return x\n", range(n)),
        IMPORT
        + "class NewMLP(BaseMLP):\n"
        + lines("    def m{}(self, x):\n        return super().m{}(x)\n", range(n)),
    ),
    "methods called in expressions": lambda n: (
        "class BaseMLP:\n" + lines("    def m{}(self, x):\n        return x\n", range(n)),
        IMPORT
        + "class NewMLP(BaseMLP):\n"
        + lines("    def m{}(self, x):\n        return 2 * super().m{}(x)\n", range(n)),
    ),
    "attributes": lambda n: (
        "class BaseMLP:\n" + lines("    a{} = 1\n", range(n)),
        IMPORT + "class NewMLP(BaseMLP):\n" + lines("    a{} = 2\n", range(n)),
    ),
    "imports": lambda n: (
        lines("import m{}\n", range(n))
        + f"{BASE}\n    def g(self):\n        return [{', '.join(f'm{i}' for i in range(n))}]\n",
        HEIR,
    ),
    "neighbours": lambda n: (BASE, lines("from ..n{}.modeling_n{} import N{}MLP\n", range(n)) + HEIR),
    "protected imports": lambda n: (lines("if is_{}_available():\n    import m{}\n", range(n)) + BASE, HEIR),
    "calls with the instance": lambda n: (
        assigned(n) + lines("        count(self, {})\n", range(n)),
        INIT + lines("        self.b{} = measure(self)\n", range(n)),
    ),
    "methods that a line uses": lambda n: (
        f"{assigned(n)}        self.m0()\n\n" + lines("    def m{}(self):\n        self.n{} = vars(self)\n", range(n)),
        INIT + lines("        self.a{} = self.m{}()\n", range(n)),
    ),
    "a chain of methods": lambda n: (
        f"{assigned(n)}\n"
        + "".join(f"    def m{i}(self):\n        self.m{i + 1}()\n        self.n{i} = 1\n" for i in range(n)),
        INIT + lines("        self.a{} = self.m{}()\n", range(n)),
    ),
    "inner functions": lambda n: (
        assigned(n) + lines("        y{} = 1\n", range(n)),
        INIT + lines("        x{} = {}\n        self.f{} = lambda: x{}\n", range(n)),
    ),
    "arguments": lambda n: (
        f"class BaseMLP:\n    def __init__(self, {', '.join(f'p{i}' for i in range(n))}):\n"
        + lines("        self.a{} = p{}\n", range(n)),
        f"{IMPORT}class NewMLP(BaseMLP):\n    def __init__(self, config):\n"
        f"        super().__init__({', '.join(f'f({i})' for i in range(n))})\n",
    ),
    "arguments by name": lambda n: (
        f"class BaseMLP:\n    def __init__(self, {', '.join(f'p{i}' for i in range(n))}):\n"
        + lines("        self.a{} = p{}\n", range(n)),
        f"{IMPORT}class NewMLP(BaseMLP):\n    def __init__(self, config):\n"
        f"        super().__init__({', '.join(f'p{i}=config.p{i}' for i in range(n))})\n",
    ),
    "strings": lambda n: (BASE + f"\n    names = {[f'Base {i}' for i in range(n)]}\n", HEIR),
}


def work(tmp_path: Path, base: str, modular: str) -> int:
    """A count of the work of one conversion."""
    (path,) = write(tmp_path, {"base/modeling_base.py": base, "new/modular_new.py": modular})[1:]
    return count(lambda: Run(SETTINGS, workers=1).convert([path]))


def write(tmp_path: Path, texts: Mapping[str, str]) -> list[str]:
    """Write files below a folder of models; returns their paths."""
    paths = [tmp_path / "models" / name for name in texts]
    for path, text in zip(paths, texts.values()):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return [str(path) for path in paths]


def count(call: Callable[[], object]) -> int:
    """A count of the work of a call."""
    total = 0

    def observe(frame: FrameType, event: str, argument: object) -> None:
        nonlocal total
        if event in ("call", "c_call"):
            total += 1
            name = getattr(argument, "__name__", "")
            if name == "compile" and "source" in frame.f_locals:
                total += len(frame.f_locals["source"])
            elif name in PASSING and isinstance(owner := getattr(argument, "__self__", None), str):
                total += len(owner) // 10

    sys.setprofile(observe)
    try:
        call()
    finally:
        sys.setprofile(None)
    return total


@pytest.mark.parametrize("case", CASES)
def test_work_grows_with_the_size(tmp_path, case):
    few, many = (work(tmp_path / str(n), *CASES[case](n)) for n in (FEW, MANY))
    assert many / few <= MOST_GROWTH * MANY / FEW, f"{few:,} -> {many:,}"


def test_bases_are_ordered_in_time_with_their_number():
    def ordered(number: int) -> int:
        names = [f"Base{one}" for one in range(number)]
        text = "".join(f"class {name}: ...\n" for name in names) + f"class New({', '.join(names)}): ..."
        tree = ast.parse(text)
        return count(lambda: list(base_faults(tree, text, lambda module: False)))

    few, many = ordered(FEW), ordered(MANY)
    assert many / few <= MOST_GROWTH * MANY / FEW, f"{few:,} -> {many:,}"


@pytest.mark.parametrize("on_disk", [True, False])
def test_a_chain_of_models_is_scheduled_in_time_with_its_length(on_disk):
    def scheduled(number: int) -> int:
        paths = [f"/models/x{one}/modular_x{one}.py" for one in range(number)]
        gives = {path: path.replace("modular_", "modeling_") for path in paths}
        needs = {path: frozenset(paths[one - 1 : one]) for one, path in enumerate(paths)}
        required = {path: frozenset(gives[one] for one in needed) for path, needed in needs.items()}
        written, done = set[str](), dict[str, Conversion]()

        def run() -> None:
            schedule = Schedule(required, needs, {}, (), lambda file: on_disk or file in written, speculates=True)
            while ready := schedule.next_round():
                batch = [Conversion(path, {}, requires=required[path]) for path in ready]
                changed = {} if on_disk else {gives[path]: path for path in ready}
                written.update(changed)
                done.update({one.path: one for one in batch})
                schedule.settle(batch, changed, done)

        work = count(run)
        assert len(done) == number
        return work

    few, many = scheduled(FEW), scheduled(MANY)
    assert many / few <= MOST_GROWTH * MANY / FEW, f"{few:,} -> {many:,}"


@pytest.mark.parametrize("opening", ["(", "[", "-", "not ", "f(", "lambda: "])
@pytest.mark.parametrize("where", ["    x = {}\n", "    def forward(self, x):\n        return {}\n"])
def test_deep_nesting_is_converted_or_a_finding(tmp_path, opening, where):
    closing = {"(": ")", "[": "]", "f(": ")"}.get(opening, "")
    text = IMPORT + "class NewMLP(BaseMLP):\n" + where.format(opening * 5000 + "1" + closing * 5000)
    for name, content in (("base/modeling_base.py", BASE), ("new/modular_new.py", text)):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(content)
    (found,) = Run(SETTINGS, workers=1).convert([str(tmp_path / "new/modular_new.py")])
    # From Python 3.12 on its parser reads operators that are nested so deeply.
    converted = any(opening * 5000 in text for text in found.files.values())
    assert converted or [one.code for one in found.findings] == ["MC101"]


def test_an_expression_that_is_too_deep_for_a_merge_is_a_finding(tmp_path):
    own = f"{INIT.rpartition('super')[0]}super().__init__({' + '.join(['config'] * 600)})\n"
    own = own.replace("config):", "config, **super_kwargs):")
    base = "from torch import nn\n\n\n" + BASE.replace("BaseMLP:", "BaseMLP(nn.Module):").replace(
        "config)", "config, *rest)"
    )
    paths = write(tmp_path, {"base/modeling_base.py": base, "new/modular_new.py": own})
    ((found,),) = (one.findings for one in Run(SETTINGS, workers=1).convert(paths[1:]))
    assert found.code == "MC204" and "nested too deeply" in found.message
