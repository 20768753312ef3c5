"""Which neighbours a modular file imports, in every spelling that Python allows, and what a run makes of that."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modular_converter.check.run import CheckOptions, check
from modular_converter.convert import batch
from modular_converter.convert.schedule import ancestor_files, cycles, levels, reached, required_files
from modular_converter.convert.source.library import Library
from modular_converter.findings import Conversion
from modular_converter.settings.load import profile_settings


BASE = "from torch import nn\n\n\nclass BaseMLP(nn.Module):\n    def forward(self, x):\n        return x + 1\n"
HEIR = '{statement}\n\n\nclass {New}MLP({Old}MLP):\n    pass\n\n\n__all__ = ["{New}MLP"]\n'
SPELLINGS = {
    "plain": "from ..zeta.modeling_zeta import ZetaMLP",
    "names in brackets": "from ..zeta.modeling_zeta import (\n    ZetaMLP,\n)",
    "continued before import": "from ..zeta.modeling_zeta \\\n    import ZetaMLP",
    "continued after from": "from \\\n    ..zeta.modeling_zeta import ZetaMLP",
    "spaces after the dots": "from .. zeta.modeling_zeta import ZetaMLP",
    "spaces around a dot": "from ..zeta . modeling_zeta import ZetaMLP",
    "no space": "from..zeta.modeling_zeta import ZetaMLP",
    "tabs": "from\t..zeta.modeling_zeta\timport\tZetaMLP",
    "after a semicolon": "x = 1; from ..zeta.modeling_zeta import ZetaMLP",
    "continued after a semicolon": "x = 1; \\\n  from ..zeta.modeling_zeta import ZetaMLP",
    "after a form feed": "  \ffrom ..zeta.modeling_zeta import ZetaMLP",
    "letters that are the same": "from ..zeta.modeling_ｚeta import ZetaMLP",
    "below a string with an import in it": '"""\nfrom ..none.modeling_none import X\n"""\n'
    "from ..zeta.modeling_zeta import ZetaMLP",
}


def write(models: Path, model: str, text: str, kind: str = "modular") -> Path:
    path = models / model / f"{kind}_{model}.py"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def required(path: Path) -> list[str]:
    return sorted(map(os.path.basename, required_files(str(path), Library(profile_settings()))))


@pytest.mark.parametrize("statement", SPELLINGS.values(), ids=SPELLINGS)
def test_an_import_is_found_however_it_is_spelt(tmp_path, statement):
    assert required(write(tmp_path, "alpha", f"import os\n{statement}\n")) == ["modeling_zeta.py"]


@pytest.mark.parametrize(
    "text",
    [
        '"""\nfrom ..zeta.modeling_zeta import ZetaMLP\n"""\n',
        "x = 'a \\\nfrom ..zeta.modeling_zeta import ZetaMLP'\n",
        "# from ..zeta.modeling_zeta import ZetaMLP; from ..zeta.modeling_zeta import ZetaMLP\n",
        "def f():\n    from ..zeta.modeling_zeta import ZetaMLP\n",
        "def f():\n    x = 1; from ..zeta.modeling_zeta import ZetaMLP\n",
        "from ..auto.modeling_auto import AutoModel\nimport models\nfrom .. import zeta\n",
    ],
)
def test_what_only_looks_like_an_import_is_none(tmp_path, text):
    assert required(write(tmp_path, "alpha", text)) == []


def test_a_module_that_is_imported_whole_is_a_neighbour(tmp_path):
    for folder in ("lib", "lib/models", "lib/models/alpha"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "__init__.py").touch()
    path = write(tmp_path / "lib/models", "alpha", "import os, lib.models . zeta.modeling_zeta as zeta\n")
    assert required(path) == ["modeling_zeta.py"]


def test_a_file_that_is_no_python_has_no_neighbours(tmp_path):
    assert required(write(tmp_path, "alpha", "from ..eta.modeling_eta import X\n)\n")) == []


GRAPHS = st.dictionaries(st.sampled_from("abcdef"), st.frozensets(st.sampled_from("abcdefg")))


@given(GRAPHS)
def test_levels_and_cycles_share_all_files_out(needs):
    reach = {one: set(needed) for one, needed in needs.items()}
    for _ in needs:
        reach = {one: far.union(*(reach.get(other, ()) for other in far)) for one, far in reach.items()}
    on_cycle = {one for one in needs if one in reach[one]}
    found = cycles(needs)
    assert on_cycle == {one for cycle in found for one in cycle}
    for cycle in found:
        assert all(needed in needs[one] for one, needed in zip(cycle, (*cycle[1:], cycle[0])))
    place = {one: number for number, level in enumerate(levels(needs)) for one in level}
    assert place.keys() == {one for one in needs if on_cycle.isdisjoint({one, *reach[one]})}
    assert all(place[needed] < place[one] for one in place for needed in needs[one] if needed in needs)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """`alpha` builds on what is generated for `zeta`, which builds on `base`."""
    statement = "from ..base.modeling_base import BaseMLP"
    write(tmp_path / "models", "zeta", HEIR.format(statement=statement, New="Zeta", Old="Base"))
    write(tmp_path / "models", "base", BASE, kind="modeling")
    (tmp_path / "pyproject.toml").write_text('[tool.modular-converter]\nruff-config = "profile"\n')
    return tmp_path


def written(tree: Path, **options) -> list[str]:
    result = check(CheckOptions(root=str(tree), fix=True, **options))
    assert result.exit_code == 0, [str(one) for one in result.findings]
    return [os.path.basename(path) for path in result.written]


@pytest.mark.parametrize("name", ["plain", "no space", "continued before import", "after a semicolon"])
def test_dependents_are_fixed_in_one_pass_and_neighbours_are_written_first(tree, name):
    write(tree / "models", "alpha", HEIR.format(statement=SPELLINGS[name], New="Alpha", Old="Zeta"))
    assert written(tree) == ["modeling_zeta.py", "modeling_alpha.py"]
    write(tree / "models", "base", BASE.replace("x + 1", "x + 2"), kind="modeling")
    assert written(tree) == ["modeling_zeta.py", "modeling_alpha.py"]
    assert written(tree) == []


@pytest.mark.parametrize("cache", [False, True])
def test_what_a_conversion_has_read_counts_where_nothing_told_of_it_before(tree, tmp_path, monkeypatch, cache):
    folder = str(tmp_path / "cache") if cache else None
    write(tree / "models", "alpha", HEIR.format(statement=SPELLINGS["plain"], New="Alpha", Old="Zeta"))
    assert written(tree, cache=folder)
    write(tree / "models", "base", BASE.replace("x + 1", "x + 2"), kind="modeling")
    monkeypatch.setattr(batch, "required_files", lambda path, library: frozenset())
    assert written(tree, cache=folder) == ["modeling_zeta.py", "modeling_alpha.py"]
    assert written(tree, cache=folder) == []


def test_a_run_ends_though_files_go_on_changing_each_other(tree, monkeypatch):
    write(tree / "models", "alpha", "")
    alpha, zeta = (str(tree / f"models/{model}/modeling_{model}.py") for model in ("alpha", "zeta"))
    calls: list[str] = []

    def convert(path: str, library: Library) -> Conversion:
        calls.append(path)
        assert len(calls) < 50
        gives, reads = (alpha, zeta) if "alpha" in path else (zeta, alpha)
        return Conversion(path, {gives: f"x = {len(calls)}\n"}, reads={reads: "anything"})

    monkeypatch.setattr(batch, "convert_safely", convert)
    paths = [str(path) for path in tree.rglob("modular_*.py")]
    assert len(batch.Run(profile_settings()).convert(paths)) == len(set(calls)) == 2 < len(calls)


@pytest.mark.parametrize(
    "statement", ["from ..zeta import ZetaMLP", "from .. import zeta", "from ..zeta import ZetaMLP as Z"]
)
def test_a_package_that_hands_on_a_base_stands_for_all_files_of_its_model(tmp_path, statement):
    base = {"from .. import zeta": "zeta.ZetaMLP", "from ..zeta import ZetaMLP as Z": "Z"}.get(statement, "ZetaMLP")
    text = f"{statement}\n\n\nclass AlphaMLP({base}):\n    pass\n"
    found = required(write(tmp_path, "alpha", text))
    assert {"modeling_zeta.py", "configuration_zeta.py", "processing_zeta.py"} <= {*found}
    assert required(write(tmp_path, "alpha", f"{statement}\n")) == []  # no base of it


def test_all_that_steps_lead_to_is_found_once():
    steps = {"a": "b", "b": "ac", "c": "", "d": "a"}
    assert reached("a", steps.__getitem__) == {"a", "b", "c"}


def test_the_files_of_ancestors_count_as_read(tmp_path):
    write(tmp_path, "zeta", "class ZetaMLP:\n    pass\n", "modeling")
    path = write(tmp_path, "alpha", f"{SPELLINGS['plain']}\n\n\nclass AlphaMLP(ZetaMLP):\n    pass\n")
    library = Library(profile_settings())
    found = ancestor_files(str(path), library)
    assert "modeling_zeta.py" in map(os.path.basename, found) and found <= library.observations.reads.keys()
