"""The page of the graph in a real browser, of a small and of a large library."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from modular_converter.commands.check import check_command
from modular_converter.files.arguments import models_folder
from modular_converter.graph import Graph, render
from tests.integration.browser import Page, browser_page
from tests.integration.small_library import BASE, NEIGHBOUR, add, git
from tests.integration.test_graph_page import BROWSER, REPOSITORY, read


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    assert BROWSER is not None
    with browser_page(BROWSER, tmp_path_factory.mktemp("profile")) as page:
        yield page


@pytest.fixture
def page(browser: Page) -> Iterator[Page]:
    """The browser's page; nothing that a test does with it may make the console complain."""
    browser.complaints.clear()
    yield browser
    browser.settle()
    assert browser.complaints == []


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> tuple[Graph, Path]:
    """The graph of the repository's own models, and its page."""
    graph = read(str(REPOSITORY / "models"))
    path = tmp_path_factory.mktemp("small") / "graph.html"
    path.write_text(render("html", graph), encoding="utf-8")
    return graph, path


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> tuple[Graph, Path]:
    """The graph of transformers, and its page."""
    folder = models_folder("transformers", None)
    assert folder is not None
    graph = read(folder)
    path = tmp_path_factory.mktemp("large") / "graph.html"
    path.write_text(render("html", graph), encoding="utf-8")
    return graph, path


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MODULAR_CONVERTER_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(scope="session")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`size` and `größe` build on `base`; all is current and committed. No name is plain."""
    root = tmp_path_factory.mktemp("trees") / "drei Modelle, für uns"
    add(root / "models", "size", "base")
    add(root / "models", "größe", "size")
    (root / "models/base").mkdir()
    (root / "models" / NEIGHBOUR).write_text(BASE)
    (root / "pyproject.toml").write_text('[tool.modular-converter]\nruff-config = "profile"\n')
    assert CliRunner().invoke(check_command, ["--root", str(root), "--write", "--no-cache"]).exit_code == 0
    git(root, "init", "-q", "-b", "main")
    git(root, "add", "-A")
    git(root, "commit", "-qm", "first")
    return root


@pytest.fixture
def tree(first: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(first, tmp_path / first.name, symlinks=True))
