"""The documentation is true: the rule pages are current, and the examples convert as they say.

In the guide, the how-tos and the README an HTML comment above a fenced block makes it part of an example:
`<!-- shared: PATH -->` is a file of every example, `<!-- before: PATH -->` one of this example, and
`<!-- after: PATH -->` what is generated at that path. A line `...` in the latter leaves something out.
"""

from __future__ import annotations

import importlib.util
import pathlib
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field

import pytest

from modular_converter import convert_paths
from modular_converter.rules import all_rules
from modular_converter.settings.load import profile_settings


ROOT = pathlib.Path(__file__).parents[2]
BLOCK = re.compile(r"<!-- (shared|before|after): (\S+) -->\n```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@dataclass
class Example:
    """The files of one example, by path."""

    name: str
    before: dict[str, str] = field(default_factory=dict)
    after: dict[str, str] = field(default_factory=dict)


def read_examples(name: str) -> tuple[dict[str, str], list[Example]]:
    """The shared files of a page, and its examples: a `before` that follows an `after` begins a new one."""
    text = (ROOT / name).read_text(encoding="utf-8")
    shared: dict[str, str] = {}
    examples: list[Example] = []
    for match in BLOCK.finditer(text):
        role, path, code = match.groups()
        if role == "shared":
            shared[path] = code
            continue
        if role == "before" and (not examples or examples[-1].after):
            heading = re.findall(r"^#+ (.+)$", text[: match.start()], re.MULTILINE)[-1]
            examples.append(Example(f"{name}, {heading}, line {text.count(chr(10), 0, match.start()) + 1}"))
        (examples[-1].before if role == "before" else examples[-1].after)[path] = code
    return shared, examples


SHARED = read_examples("docs/guide/example.md")[0]
WITH_EXAMPLES = (
    "README.md",
    "docs/how-to/installed-library.md",
    *sorted(f"docs/guide/{path.name}" for path in (ROOT / "docs/guide").iterdir()),
)
EXAMPLES = [example for name in WITH_EXAMPLES for example in read_examples(name)[1]]


def convert(example: Example, root: pathlib.Path) -> dict[str, str]:
    """The generated texts of an example, by path relative to `root`."""
    (root / "pyproject.toml").write_text('[tool.modular-converter]\nruff-config = "profile"\n', encoding="utf-8")
    for path, text in {**SHARED, **example.before}.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text, encoding="utf-8")
        if "lib/" in path:  # a library is a package, down to the model's folder
            for folder in pathlib.PurePath(path).parents[:-1]:
                (root / folder / "__init__.py").touch()
    conversions = convert_paths(root.glob("**/modular_*.py"))
    errors = [finding for one in conversions for finding in one.findings if finding.is_error]
    assert not errors, errors
    return {
        pathlib.Path(path).relative_to(root).as_posix(): text
        for conversion in conversions
        for path, text in conversion.files.items()
    }


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_example_converts_as_it_says(example, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))  # where the package of a foreign neighbour is found
    texts = convert(example, tmp_path)
    assert example.after
    for path, text in texts.items():
        compile(text, path, "exec", dont_inherit=True)
    for path, shown in example.after.items():
        position = 0
        for piece in re.split(r"^\.\.\.\n", shown, flags=re.MULTILINE):
            found = ("\n" + texts[path]).find("\n" + piece.strip("\n") + "\n", position)
            assert found >= 0, f"not in {path}, at least not there:\n{piece}\n\n{texts[path]}"
            position = found + 1


def test_there_are_examples():
    assert len(EXAMPLES) > 15
    assert [example for example in EXAMPLES if example.name.startswith("README")]


def written_by(script: str) -> dict[str, str]:
    """The pages of a script of `utils`, by path."""
    spec = importlib.util.spec_from_file_location(script, ROOT / "utils" / f"{script}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.pages()


def test_rule_pages_are_current():
    written = written_by("write_rule_docs")
    pages = {
        "rules.md",
        "writing.md",
        "llms.txt",
        *(f"rules/{path.name}" for path in (ROOT / "docs" / "rules").iterdir()),
    }
    assert pages == written.keys(), "run `python utils/write_rule_docs.py`"
    for name, text in written.items():
        assert (ROOT / "docs" / name).read_text(encoding="utf-8") == text, "run `python utils/write_rule_docs.py`"


def test_references_are_current():
    pytest.importorskip("torch", reason="modular-plan")
    for name, text in written_by("write_reference").items():
        assert (ROOT / name).read_text(encoding="utf-8") == text, "run `python utils/write_reference.py`"


@pytest.mark.skipif(sys.version_info < (3, 11), reason="zensical needs Python 3.11")
def test_the_site_is_built_without_a_warning(tmp_path):
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    shutil.copy(ROOT / "zensical.toml", tmp_path)
    command = [sys.executable, "-m", "zensical", "build", "--strict"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, re.sub(r"\x1b\[[0-9;]*m", "", done.stderr + done.stdout)
    assert (tmp_path / "site/guide/index.html").is_file() and (tmp_path / "site/rules/MC201/index.html").is_file()


def test_the_site_leads_to_every_page():
    """But for the pages of single rules, to which their table leads."""
    config = (ROOT / "zensical.toml").read_text(encoding="utf-8")
    named = set(re.findall(r'"([\w/-]+\.md)"', config))
    pages = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    assert named == {page for page in pages if not page.startswith("rules/")}


@pytest.mark.parametrize("page", sorted((ROOT / "docs/how-to").iterdir()), ids=lambda page: page.name)
def test_a_how_to_is_short(page):
    assert len(page.read_text(encoding="utf-8").splitlines()) <= 60


@pytest.mark.parametrize("name", ["core", "dev"])
def test_setup_commands_can_be_found(name):
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(re.findall(rf"^<!-- setup: {name} -->\n```sh\n[^\n]+\n```$", text, re.MULTILINE)) == 1


PAGES = [
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    *sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md")),
]
LINK = re.compile(r"\]\(([^)\s]+)\)")
FILE = re.compile(r"`([\w./-]+(?:\.(?:py|toml|md)|/))(?:::(\w+))?`")


def anchors(page: pathlib.Path) -> set[str]:
    """The anchors that GitHub gives the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_links_lead_somewhere():
    for page in PAGES:
        path = ROOT / page
        for link in LINK.findall(path.read_text(encoding="utf-8")):
            target, _, anchor = link.partition("#")
            if "://" in target:
                continue
            file = path.parent / target if target else path
            assert file.exists(), (page, link)
            assert not anchor or file.suffix != ".md" or anchor in anchors(file), (page, link)


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "docs/architecture.md"])
def test_files_and_tests_that_a_page_names_exist(page):
    """A path in backticks is below the root, the package, its `convert` or its `parallel`."""
    places = [ROOT, *(ROOT / "modular_converter" / room for room in ("", "convert", "parallel"))]
    found = FILE.findall((ROOT / page).read_text(encoding="utf-8"))
    assert found
    for name, test in found:
        file = next((place / name for place in places if (place / name).exists()), None)
        assert file is not None or "<" in name, name
        assert not test or f"def {test}(" in file.read_text(encoding="utf-8"), f"{name}::{test}"


def test_the_architecture_names_every_folder():
    text = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    package = ROOT / "modular_converter"
    folders = {
        path.parent.relative_to(package).as_posix() for path in package.rglob("*") if path.suffix in (".py", ".js")
    }
    missing = {folder for folder in folders - {"."} if f"`{folder}/" not in text and f"/{folder}/" not in text}
    assert not missing


def test_no_page_promises_a_release():
    """Nothing is on an index and nothing is tagged: what is installed comes from a checkout."""
    promise = re.compile(r"pip install ['\"]?modular-converter|example\.(?:org|com)|rev: v\d")
    assert not [page for page in PAGES if promise.search((ROOT / page).read_text(encoding="utf-8"))]


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 120


def test_the_figures_of_the_readme_are_those_of_their_pages():
    def page(name: str) -> str:
        return (ROOT / name).read_text(encoding="utf-8")

    readme, corpus = page("README.md"), page("docs/corpus.md")
    (exact,) = re.findall(r"(\d+ of \d+) generated files of transformers ([\d.]+)", readme)
    assert f"**{exact[0]}** generated files of `transformers` {exact[1]}" in corpus
    (programs,) = re.findall(r"([\d,]+) random programs", readme)
    campaigns = re.findall(r"^\| \d+ \| \d+ \| ([\d,]+) \|.* (\d+) \|$", corpus, re.M)
    assert campaigns[-1] == (programs, "0"), "the newest campaign has no difference in silence"
    (quick,) = re.findall(r"([\d.]+) s for a check of (\d+) models", readme)
    warm = re.findall(
        r"^(\d+) modular files.*?^warm, against hashing +([\d.]+)", page("docs/figures/check.md"), re.S | re.M
    )
    assert [(f"{float(seconds):.2f}", models) for models, seconds in warm] == [quick]
    (plans,) = re.findall(r"(\d+ of \d+ model types), derived in ([\d.]+) s", readme)
    assert re.search(
        rf"{plans[0]} verified.*?Deriving took {plans[1]}\d* s in the median", page("docs/figures/plans.md")
    )
    (rules,) = re.findall(r"more than (\d+) rules", readme)
    assert len(all_rules()) > int(rules)


def test_the_guide_lists_the_kinds_of_the_profile():
    table = (
        (ROOT / "docs/guide/files.md")
        .read_text(encoding="utf-8")
        .partition("## Kinds of file")[2]
        .partition("<!--")[0]
    )
    rows = re.findall(r"^\| (`.+`) \| `(\w+)_<model>\.py` \|$", table, re.MULTILINE)
    listed = {suffix: kind for suffixes, kind in rows for suffix in re.findall(r"`(\w+)`", suffixes)}
    assert listed == profile_settings().kinds


def test_notes_of_changes_have_a_kind():
    tomllib = pytest.importorskip("tomllib", reason="Python 3.11")
    config = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["towncrier"]
    kinds = {one["directory"] for one in config["type"]}
    notes = [path.name.split(".") for path in (ROOT / config["directory"]).iterdir()]
    assert all(len(parts) == 3 and parts[0][0] == "+" and parts[1] in kinds and parts[2] == "md" for parts in notes)
    assert config["start_string"] in (ROOT / config["filename"]).read_text(encoding="utf-8")
