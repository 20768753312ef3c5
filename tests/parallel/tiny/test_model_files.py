"""MODEL as a file: the modules that are imported, their places, and that nothing is written."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest


pytest.importorskip("transformers")
from modular_converter.parallel.errors import BuildError  # noqa: E402
from modular_converter.parallel.tiny.build import build, target_of  # noqa: E402
from modular_converter.parallel.tiny.target import file_target, is_file, open_file, split_class  # noqa: E402


ZOO = Path(__file__).parents[3] / "models"
TOY = """\
from torch import nn
from transformers.configuration_utils import PreTrainedConfig
from transformers.modeling_utils import PreTrainedModel
from huggingface_hub.dataclasses import strict

{imports}


@strict
class ToyConfig(PreTrainedConfig):
    model_type = "toy"
    hidden_size: int = 64
    vocab_size: int = 100


class ToyModel(PreTrainedModel):
    config: ToyConfig
    base_model_prefix = "model"

    def __init__(self, config: ToyConfig):
        super().__init__(config)
        self.embed = nn.Embedding(config.vocab_size, config.hidden_size)
        self.norm = Norm(config.hidden_size)
        self.post_init()

    def forward(self, input_ids):
        return self.norm(self.embed(input_ids))
"""
NORM = "from torch.nn import LayerNorm as Norm\n"


def toy(folder: Path, path: str, imports: str) -> str:
    """Put a model file below a folder; its path."""
    place = folder / path
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(TOY.replace("{imports}", imports))
    return str(place)


def files(folder: Path) -> dict[str, str]:
    return {str(path): path.read_text() for path in folder.rglob("*.py")}


@pytest.mark.parametrize(
    ("model", "path", "name"),
    [
        ("models/x/modeling_x.py", "models/x/modeling_x.py", ""),
        ("models/x/modeling_x.py:XModel", "models/x/modeling_x.py", "XModel"),
        ("modular_x.py", "modular_x.py", ""),
        ("C:/models/modeling_x.py", "C:/models/modeling_x.py", ""),
        ("plan.json", "plan.json", ""),
    ],
)
def test_a_file_may_have_a_class_behind_it(model, path, name):
    assert split_class(model) == (path, name)
    assert is_file(model)


@pytest.mark.parametrize("model", ["llama", "xlm-roberta", "transformers.models.llama.modeling_llama.LlamaModel"])
def test_types_and_class_paths_are_no_files(model):
    assert not is_file(model)


def test_imports_from_the_whole_package(tmp_path):
    """As in a library: three folders up, and from a neighbour."""
    root = tmp_path / "library_of_three"
    path = toy(root, "models/toy/modeling_toy.py", "from ...norms import Norm\nfrom ..other.parts import PART")
    (root / "norms.py").write_text(NORM)
    (root / "models" / "other").mkdir()
    (root / "models" / "other" / "parts.py").write_text("PART = 1\n")
    for folder in (root, root / "models", root / "models" / "toy", root / "models" / "other"):
        (folder / "__init__.py").write_text("")
    target = file_target(path)
    assert target.model_class == "library_of_three.models.toy.modeling_toy.ToyModel"
    assert type(build(target).model).__name__ == "ToyModel"


def test_imports_without_any_init_file(tmp_path):
    path = toy(tmp_path, "bare_zoo/toy/modeling_toy.py", "from ..norms import Norm")
    (tmp_path / "bare_zoo" / "norms.py").write_text(NORM)
    assert target_of(path).model_class == "bare_zoo.toy.modeling_toy.ToyModel"


def test_a_single_file_without_a_package(tmp_path):
    path = toy(tmp_path / "alone", "modeling_lonely.py", NORM)
    assert file_target(path).model_class == "alone.modeling_lonely.ToyModel"


def test_a_modular_file_counts_and_not_what_was_generated_from_it(tmp_path):
    """The files on disk are of an older state; they are neither used nor changed."""
    root = tmp_path / "stale_zoo"
    for name in ("auto", "llama", "gemma"):
        shutil.copytree(ZOO / name, root / "models" / name, ignore=shutil.ignore_patterns("__pycache__"))
    for folder in (root, root / "models"):
        (folder / "__init__.py").write_text("")
    (root / "models" / "gemma" / "modeling_gemma.py").write_text("raise ValueError('an old state')\n")
    before = files(root)
    target = file_target(str(root / "models" / "gemma" / "modular_gemma.py"))
    assert [name.rpartition(".")[2] for name, _, _ in target.texts] == [
        *("configuration_gemma", "modeling_gemma", "tokenization_gemma")
    ]
    assert type(build(target).model).__module__ == "stale_zoo.models.gemma.modeling_gemma"
    assert files(root) == before


def test_what_is_current_on_disk_is_taken_from_there():
    assert open_file(str(ZOO / "gemma" / "modular_gemma.py")).texts == ()


@pytest.mark.parametrize(("folder", "name"), [("gemma", "modular_gemma.py"), ("bert", "modeling_bert.py")])
def test_a_folder_stands_for_its_one_model(folder, name):
    assert open_file(str(ZOO / folder)) == open_file(str(ZOO / folder / name))


def test_a_folder_without_one_model_is_refused(tmp_path):
    with pytest.raises(BuildError, match="no file modular_<model>.py or modeling_<model>.py"):
        open_file(str(tmp_path))
    for name in ("modeling_a.py", "modeling_b.py"):
        toy(tmp_path, name, NORM)
    with pytest.raises(BuildError, match="several models; give one of modeling_a.py, modeling_b.py"):
        open_file(str(tmp_path))


def test_of_several_base_models_the_one_of_the_files_name():
    path = str(ZOO / "gemma_vision" / "modular_gemma_vision.py")
    assert file_target(path).model_class.endswith(".GemmaVisionModel")
    assert file_target(f"{path}:GemmaVisionCaptionModel").config_class.endswith(".GemmaVisionCaptionConfig")


def test_where_none_has_the_name_the_choices_are_listed(tmp_path):
    text = TOY.replace("{imports}", NORM)
    second = text.partition("@strict")[2].replace("Toy", "Boy").replace('"toy"', '"boy"')
    path = tmp_path / "choice" / "modeling_third.py"
    path.parent.mkdir()
    path.write_text(f"{text}\n\n@strict{second}")
    with pytest.raises(BuildError, match="several models could be meant; give .*:ToyModel or .*:BoyModel"):
        file_target(str(path))
