"""A small tree of models: llama by hand, gemma from it, gemma2 from both, and echo from gemma2."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from modular_converter.convert.source.library import Library
from modular_converter.findings import Finding
from modular_converter.graph.build import Graph, build_graph
from modular_converter.settings.load import profile_settings


LLAMA = """\
LLAMA_SCALE: float = 2.0


def rotate_half(x):
    return x


class LlamaMLP:
    pass


class LlamaModel:
    pass
"""
GEMMA = """\
from ..llama.modeling_llama import LlamaMLP, LlamaModel as Base


class GemmaMLP(LlamaMLP):
    pass


@decorated(class_name="class ")
class GemmaModel(Base):
    pass
"""
GEMMA2 = """\
import torch

from ..gemma.modeling_gemma import GemmaMLP, LOGGER
from ..llama.modeling_llama import LLAMA_SCALE, LlamaModel, rotate_half


class Gemma2MLP(GemmaMLP, torch.nn.Module):
    def forward(self, x):
        return rotate_half(x) * LLAMA_SCALE
"""
ECHO = """\
from ...models.gemma2.modeling_gemma2 import Gemma2MLP


class EchoMLP(Gemma2MLP):
    pass
"""
BANNER = "#\n#           This file was automatically generated from src/{path}.\n#\n"

Write = Callable[[Mapping[str, str]], Path]
Read = Callable[[Path], tuple[Graph, list[Finding]]]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write files below a folder of models; returns that folder."""

    def write_files(files: Mapping[str, str]) -> Path:
        root = tmp_path / "zoo" / "models"
        for name, text in files.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8", errors="surrogateescape")
        return root

    return write_files


@pytest.fixture
def read() -> Read:
    """The graph of the modular files in a folder of models, and the findings."""

    def read_graph(root: Path) -> tuple[Graph, list[Finding]]:
        paths = [str(path) for path in root.glob("**/modular_*.py")]
        return build_graph(paths, str(root), Library(profile_settings()))

    return read_graph


@pytest.fixture
def zoo(write: Write) -> Path:
    """The folder of models of the small tree."""
    return write(
        {
            "llama/modeling_llama.py": LLAMA,
            "gemma/modular_gemma.py": GEMMA,
            "gemma/modeling_gemma.py": BANNER.format(path="models/gemma/modular_gemma.py") + LLAMA * 3,
            "gemma/tokenization_gemma.py": "# by hand\n" * 99,
            "gemma2/modular_gemma2.py": GEMMA2,
            "gemma2/modeling_gemma2.py": BANNER.format(path="models/gemma2/modular_gemma2.py") + "x = 1\n",
            "echo/modular_echo.py": ECHO,
        }
    )


@pytest.fixture
def graph(zoo: Path, read: Read) -> Graph:
    """The graph of the small tree."""
    graph, findings = read(zoo)
    assert not findings
    return graph
