"""A change of one model, followed to its heirs: what is told, of whom, and at which line."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from modular_converter.api import convert_paths
from modular_converter.breaking.older import older_tree, tree_at
from modular_converter.breaking.states import keys_of
from modular_converter.findings import ConversionError
from modular_converter.settings.load import profile_settings
from tests.unit.trees import commit, edit, run


LLAMA = """\
from torch import nn

from ...modeling_utils import PreTrainedModel
from .configuration_llama import LlamaConfig


class LlamaAttention(nn.Module):
    def __init__(self, config, layer_idx):
        super().__init__()
        self.head_dim = getattr(config, "head_dim", config.hidden_size // 4)
        self.q_proj = nn.Linear(config.hidden_size, self.head_dim * 4, bias=config.attention_bias)
        self.o_proj = nn.Linear(self.head_dim * 4, config.hidden_size, bias=False)
        self.register_buffer("mask", None, persistent=False)


class LlamaModel(PreTrainedModel):
    _no_split_modules = ["LlamaAttention"]
    config: LlamaConfig

    def __init__(self, config):
        super().__init__(config)
        self.layers = nn.ModuleList([LlamaAttention(config, n) for n in range(config.num_hidden_layers)])
        if config.hidden_size > 4:
            self.norm = nn.LayerNorm(config.hidden_size)

    @property
    def size(self):
        return 8

    def forward(self, input_ids, past=None, use_cache=True):
        return self.norm(input_ids)


__all__ = ["LlamaModel"]
"""
CONFIG = '''\
from ...configuration_utils import PreTrainedConfig


class LlamaConfig(PreTrainedConfig):
    r"""
    hidden_size (`int`, *optional*): the size.
    """

    model_type = "llama"
    hidden_size: int = 8
    attention_bias: bool = False
    num_hidden_layers: int = 2


__all__ = ["LlamaConfig"]
'''
HEIR = """\
from ..llama.configuration_llama import LlamaConfig
from ..llama.modeling_llama import LlamaModel


class {New}Config(LlamaConfig):
    pass


class {New}Model(LlamaModel):
    pass


__all__ = ["{New}Config", "{New}Model"]
"""


def library(folder: Path) -> Path:
    texts = {
        "__init__.py": "",
        "modeling_utils.py": "from torch import nn\n\n\nclass PreTrainedModel(nn.Module):\n"
        "    def save(self, folder, size=1):\n        pass\n",
        "configuration_utils.py": "class PreTrainedConfig:\n    pass\n",
        "models/__init__.py": "",
        "models/llama/modeling_llama.py": LLAMA,
        "models/llama/configuration_llama.py": CONFIG,
        "models/gemma/modular_gemma.py": HEIR.format(New="Gemma"),
        "models/phi/modular_phi.py": HEIR.format(New="Phi").replace("llama", "gemma").replace("Llama", "Gemma"),
    }
    for name, text in texts.items():
        path = folder / "zoo" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    convert(folder / "zoo")
    return folder / "zoo"


def convert(zoo: Path) -> None:
    for result in convert_paths([str(path) for path in sorted(zoo.rglob("modular_*.py"))]):
        for path, text in result.files.items():
            Path(path).write_text(text)


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return library(tmp_path_factory.mktemp("published"))


@pytest.fixture
def zoo(published: Path, tmp_path: Path) -> Path:
    shutil.copytree(published, tmp_path / "zoo")
    return tmp_path / "zoo"


def told(zoo: Path, against: str | Path, *arguments: str) -> list[dict[str, object]]:
    result = run(zoo, "--breaking", "--against", str(against), "--format", "json", "--no-cache", *arguments)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


CASES = {
    "nothing": ("head_dim * 4, bias", "head_dim * 4, bias", []),
    "MC603": ("self.o_proj", "self.out_proj", ["renames `o_proj` to `out_proj` in `LlamaAttention`: 3 models (gemma, llama, phi), 3 keys"]),
    "MC601": ('        self.o_proj = nn.Linear(self.head_dim * 4, config.hidden_size, bias=False)\n', "", ["removes `o_proj` in `LlamaAttention`: 3 models (gemma, llama, phi), 3 keys"]),
    "MC602": ("config.hidden_size, bias=False", "config.hidden_size", ["adds `o_proj.bias` in `LlamaAttention`: 3 models (gemma, llama, phi), 3 keys"]),
    "MC604": ("config.hidden_size, bias=False", "config.hidden_size + 1, bias=False", ["changes the shape of `o_proj.weight` from `(config.hidden_size, ((config.hidden_size // 4) * 4))`"]),
    "same numbers": ("self.head_dim * 4, config", "config.hidden_size, config", []),
    "no buffer": ('"mask", None', '"mask", None or None', []),
    "MC606": ("hidden_size: int = 8", "hidden_size: int = 16", ["changes the default of `hidden_size` from `8` to `16` in `LlamaConfig`: 3 models (gemma, llama, phi)"]),
    "MC605": ("attention_bias", "use_bias", ["renames the setting `attention_bias` to `use_bias` in `LlamaConfig`: 3 models (gemma, llama, phi)"]),
    "MC614": ("past=None", "cache=None", ["`forward` renames the parameter `past` to `cache` in `LlamaModel`: 3 models (gemma, llama, phi)"]),
    "MC614 ": ("input_ids, past=None", "input_ids, *, past=None", ["`forward` takes `past` by its name only in `LlamaModel`: 3 models (gemma, llama, phi)"]),
    "an attribute for a property": ("    @property\n    def size(self):\n        return 8\n\n", "    size = 8\n\n", []),
    "MC609": ("LlamaAttention(config, n) for", "made_by(n) for", ["what `layers.*` holds is not known, and it is made otherwise in `LlamaModel`: "]),
    "MC615": ("use_cache=True", "use_cache=False", ["`forward` changes the default of `use_cache` from `True` to `False` in `LlamaModel`: 3 models (gemma, llama, phi)"]),
    "MC616": ('["LlamaAttention"]', "[]", ["changes `_no_split_modules` in `LlamaModel`: 3 models (gemma, llama, phi)"]),
    "MC621": ("hidden_size (`int`", "width (`int`", ["no longer documents `hidden_size` in `LlamaConfig`: 3 models (gemma, llama, phi)"]),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_what_is_told(case: str, published: Path, zoo: Path) -> None:
    old, new, messages = CASES[case]
    for path in (zoo / "models/llama").glob("*.py"):
        path.write_text(path.read_text().replace(old, new))
    convert(zoo)
    found = told(zoo, published)
    assert len(found) == len(messages)
    for finding, message in zip(found, messages):
        assert str(finding["message"]).startswith(message)
        assert finding["code"] == case.strip()
        assert str(finding["path"]).endswith(("llama/modeling_llama.py", "llama/configuration_llama.py"))


MODELING, CONFIGURATION = "modeling_llama.py", "configuration_llama.py"
MAPPED = '    attribute_map = {"n_embd": "hidden_size"}\n'
FORMERLY_SILENT = {
    "a prefix": (MODELING, "    config: L", '    base_model_prefix = "a"\n    config: L', '    base_model_prefix = "b"\n    config: L', "changes `base_model_prefix` in `LlamaModel`: 1 model"),
    "another plan": (MODELING, "    config: L", "    _fsdp_plan = {}\n    config: L", '    _fsdp_plan = {"a": "b"}\n    config: L', "changes `_fsdp_plan` in `LlamaModel`: 1 model"),
    "a constant": (MODELING, "class LlamaModel(PreTrainedModel):\n", 'TIED = {"a": "b"}\n\n\nclass LlamaModel(PreTrainedModel):\n    _tied_weights_keys = TIED\n', 'TIED = {}\n\n\nclass LlamaModel(PreTrainedModel):\n    _tied_weights_keys = TIED\n', "changes `_tied_weights_keys` in `LlamaModel`: 1 model"),
    "a name of a setting": (CONFIGURATION, "    hidden_size: i", MAPPED + "    hidden_size: i", "    hidden_size: i", "the name `n_embd` no longer stands for the setting `hidden_size` in `LlamaConfig`"),
    "a name of another setting": (CONFIGURATION, "    hidden_size: i", MAPPED + "    hidden_size: i", MAPPED.replace("hidden", "other") + "    hidden_size: i", "the name `n_embd` no longer stands for the setting `hidden_size`, but for `other_size` in"),
    "a setting renamed below its name": (CONFIGURATION, "    hidden_size: i", MAPPED + "    hidden_size: i", '    attribute_map = {"n_embd": "width", "hidden_size": "width"}\n    width: i', ""),
}  # fmt: skip


@pytest.mark.parametrize("case", FORMERLY_SILENT)
def test_what_names_and_constants_stand_for_is_told(case: str, zoo: Path, tmp_path: Path) -> None:
    file, place, before, after, message = FORMERLY_SILENT[case]
    edit(zoo, file, place, before)
    shutil.copytree(zoo, tmp_path / "older" / "zoo")
    edit(zoo, file, before, after)
    found = [str(one["message"]) for one in told(zoo, tmp_path / "older" / "zoo", "llama") if one["code"] != "MC621"]
    assert len(found) == bool(message)
    assert not found or found[0].startswith(message)


@pytest.mark.parametrize("is_folder", [True, False])
def test_a_model_that_is_gone_is_told(is_folder: bool, published: Path, zoo: Path) -> None:
    if is_folder:
        shutil.rmtree(zoo / "models/phi")
    else:
        for path in (zoo / "models/phi").glob("mod*.py"):
            path.unlink()
    found = told(zoo, published)
    assert [one["message"] for one in found if "Model" in str(one["message"])] == [
        "no longer exports `PhiModel`: 1 model (phi)"
    ]
    assert {one["code"] for one in found} == {"MC611"}
    assert all(str(one["path"]).endswith("models/__init__.py") for one in found)


def move(zoo: Path) -> None:
    (zoo / "models/psi").mkdir()
    for kind in ("modeling", "configuration"):
        text = (zoo / f"models/phi/{kind}_phi.py").read_text().partition("\nfrom")
        moved = "".join(text[1:]).replace("configuration_phi", "configuration_psi")
        (zoo / f"models/psi/{kind}_psi.py").write_text(moved)
    shutil.rmtree(zoo / "models/phi")


MOVED = {
    "both names": ({}, ["MC603 renames `o_proj` to `out_proj` in `PhiAttention`: 1 model (phi), 1 key", "MC611 moves to `psi`: 1 model (phi)"]),
    "half of them": ({"PhiModel": "PsiModel"}, ["MC603 renames `o_proj` to `out_proj` in `PhiAttention`: 1 model (phi), 1 key", "MC611 moves to `psi`: 1 model (phi)", "MC611 no longer exports `PhiModel`, but `PsiModel`: 1 model (phi)"]),
    "none": ({"Phi": "Psi"}, ["MC603 renames `o_proj` to `out_proj` in `PsiAttention`: 1 model (phi), 1 key", "MC611 moves to `psi`: 1 model (phi)", "MC611 no longer exports `PhiConfig`, but `PsiConfig`: 1 model (phi)", "MC611 no longer exports `PhiModel`, but `PsiModel`: 1 model (phi)", "MC616 changes `_no_split_modules` in `PsiModel`: 1 model (phi)"]),
    "none, and few lines": ({"Phi": "Psi", "self": "this", "config": "settings"}, ["MC611 no longer exports `PhiConfig`: 1 model (phi)", "MC611 no longer exports `PhiModel`: 1 model (phi)"]),
}  # fmt: skip


@pytest.mark.parametrize("case", MOVED)
def test_a_model_that_moves_is_compared_where_it_is_now(case: str, published: Path, zoo: Path) -> None:
    move(zoo)
    edit(zoo, "modeling_psi.py", "o_proj", "out_proj")
    for path in (zoo / "models/psi").iterdir():
        for name, other in MOVED[case][0].items():
            path.write_text(path.read_text().replace(name, other))
    assert sorted(f"{one['code']} {one['message']}" for one in told(zoo, published)) == MOVED[case][1]


def test_a_file_that_cannot_be_read_loses_no_names(published: Path, zoo: Path) -> None:
    path = zoo / "models/llama/modeling_llama.py"
    path.write_text(path.read_text() + "def (:\n")
    found = [one for one in told(zoo, published, "llama") if str(one["code"]).startswith("MC6")]
    assert [(one["code"], one["message"], Path(str(one["path"])).name) for one in found] == [
        ("MC609", "cannot be read, so what it holds is not known: 1 model (llama)", "modeling_llama.py")
    ]


@pytest.mark.parametrize("rest", ['from .core import LlamaModel\n\n\n__all__ = ["LlamaModel"]\n', "__all__ = []\n"])
def test_a_class_in_another_file_is_compared(rest: str, published: Path, zoo: Path) -> None:
    name = "core.py" if "core" in rest else "modeling_core.py"
    text = (zoo / "models/llama/modeling_llama.py").read_text()
    (zoo / "models/llama" / name).write_text(
        text.replace("self.o_proj", "self.out_proj").replace("past=None", "past=0")
    )
    (zoo / "models/llama/modeling_llama.py").write_text(rest)
    found = told(zoo, published, "llama")
    assert [one["code"] for one in found] == ["MC603", "MC615"]
    assert all(str(one["path"]).endswith(name) for one in found)


def test_what_a_base_of_all_models_loses_is_one_finding(published: Path, zoo: Path) -> None:
    edit(zoo, "modeling_utils.py", "size=1", "size")
    (finding,) = told(zoo, published)
    assert "`save` needs `size`, which had a default in `PreTrainedModel`: 3 models" in str(finding["message"])
    edit(zoo, "modeling_utils.py", "    def save(self, folder, size):\n        pass\n", "    pass\n")
    (finding,) = told(zoo, published)
    assert "no longer defines `save` in `PreTrainedModel`: 3 models" in str(finding["message"])


@pytest.mark.parametrize("decorator", ("property", "classproperty", "functools.cached_property"))
def test_properties_are_attributes(decorator: str, zoo: Path) -> None:
    edit(zoo, "modeling_llama.py", "@property", f"@{decorator}")
    facts = tree_at(str(zoo / "models"), profile_settings()).facts("llama")
    assert facts.files["modeling_llama.py"].classes["LlamaModel"].methods["size"].is_attribute


def test_the_fields_of_a_dataclass_are_parameters(zoo: Path, tmp_path: Path) -> None:
    fields = "\n\n@dataclass\nclass LlamaOutput(Output):\n    cache: int\n    states: tuple | None = None\n"
    base = "\n\n@dataclasses.dataclass(frozen=True)\nclass Output:\n    loss: float | None = None\n"
    edit(zoo, "modeling_llama.py", '\n\n__all__ = ["LlamaModel"]\n', f'{base}{fields}\n\n__all__ = ["LlamaOutput"]\n')
    shutil.copytree(zoo, tmp_path / "older" / "zoo")
    edit(zoo, "modeling_llama.py", "    cache: int\n", "")
    edit(zoo, "modeling_llama.py", "loss: float | None = None", "loss: float | None = 0.0")
    lost, default = told(zoo, tmp_path / "older" / "zoo")
    assert "`__init__` has no parameter `cache` in `LlamaOutput`: 1 model (llama)" in str(lost["message"])
    assert "`__init__` changes the default of `loss` from `None` to `0.0`" in str(default["message"])


HEADS = """\


class LlamaHead(PreTrainedModel):
    config: LlamaConfig

    def __init__(self, config):
        super().__init__(config)
        from ..auto import AutoLlama

        self.model = LlamaModel(config)
        self.model.norm.bias = None
        self.other = AutoLlama.from_config(config)
        part = nn.Module()
        part.cell = nn.GRUCell(4, 4)
        self.parts = nn.ModuleDict()
        self.parts[f"part_{config.hidden_size}"] = part


__all__ = ["LlamaHead", "LlamaModel"]
"""
AUTO = """\
from collections import OrderedDict

from .auto_factory import _BaseAutoModelClass, _LazyAutoMapping
from .configuration_auto import CONFIG_MAPPING_NAMES


NAMES = OrderedDict([("llama", "LlamaModel")])
MAPPING = _LazyAutoMapping(CONFIG_MAPPING_NAMES, NAMES)


class AutoLlama(_BaseAutoModelClass):
    _model_mapping = MAPPING
"""


def test_the_entries_of_a_head_are_those_that_it_has(zoo: Path) -> None:
    edit(zoo, "modeling_llama.py", '\n\n__all__ = ["LlamaModel"]\n', HEADS)
    (zoo / "models/auto").mkdir()
    (zoo / "models/auto/modeling_auto.py").write_text(AUTO)
    (zoo / "models/auto/auto_factory.py").write_text("class _BaseAutoModelClass:\n    _model_mapping = None\n")
    (zoo / "models/auto/configuration_auto.py").write_text('CONFIG_MAPPING_NAMES = {"llama": "LlamaConfig"}\n')
    classes = tree_at(str(zoo / "models"), profile_settings()).facts("llama").files["modeling_llama.py"].classes
    body = ["layers.*.q_proj.weight", "layers.*.o_proj.weight", "norm.weight"]
    cell = [f"parts.part_8.cell.{name}" for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]
    model = [f"model.{name}" for name in body]
    other = [f"other.{name}" for name in (*body, "norm.bias")]
    assert {name: sorted(keys_of(one.state)) for name, one in classes.items() if one.state is not None} == {
        "LlamaHead": sorted([*model, *other, *cell]),
        "LlamaModel": sorted([*body, "norm.bias"]),
    }


def test_how_checkpoints_are_renamed_is_compared(zoo: Path, tmp_path: Path) -> None:
    table = 'def build():\n    return {"llama": [Renaming("embedding.weight", "embeddings.weight")], "phi": []}\n'
    (zoo / "conversion_mapping.py").write_text(table)
    shutil.copytree(zoo, tmp_path / "older" / "zoo")
    edit(zoo, "conversion_mapping.py", 'Renaming("embedding.weight", "embeddings.weight")', "")
    (finding,) = told(zoo, tmp_path / "older" / "zoo")
    assert (finding["code"], finding["line"]) == ("MC608", 2)
    assert "changes how entries of checkpoints of `llama` are renamed: 1 model (llama)" in str(finding["message"])


def test_another_checkout_has_its_models_where_this_one_has_them(tmp_path: Path) -> None:
    for top in ("older", "newer"):
        folder = tmp_path / top / "src" / "zoo" / "models" / "llama"
        folder.mkdir(parents=True)
        (folder / "modeling_llama.py").write_text(LLAMA)
    (tmp_path / "newer" / "pyproject.toml").touch()
    models = str(tmp_path / "newer" / "src" / "zoo" / "models")
    older = older_tree(str(tmp_path / "older"), models, profile_settings(), None)
    assert older.models == models.replace("newer", "older") and [*older.names] == ["llama"]


def test_a_release_is_downloaded(zoo: Path, tmp_path: Path) -> None:
    release = "click==8.1.7"
    wheel = [sys.executable, "-m", "pip", "--isolated", "download", "--no-deps", "--retries", "0", "--timeout", "5"]
    asked = subprocess.run(
        [*wheel, "--dest", str(tmp_path / "asked"), release], capture_output=True, text=True, check=False
    )
    if asked.returncode:
        pytest.skip(f"no package index: {(asked.stderr.splitlines() or ['pip says nothing'])[-1]}")
    (tmp_path / "click").mkdir()
    shutil.move(zoo, tmp_path / "click" / "models")
    with pytest.raises(ConversionError) as told:
        older_tree(release, str(tmp_path / "click" / "models"), profile_settings(), str(tmp_path / "cache"))
    assert "click-8.1.7" in str(told.value.findings[0].message)  # the wheel came, and has no models
    assert "it has no models" in str(told.value.findings[0].message)


def test_an_heir_that_changes_by_itself_is_its_own_cause(published: Path, zoo: Path) -> None:
    edit(
        zoo,
        "modular_gemma.py",
        "class GemmaModel(LlamaModel):\n    pass",
        "class GemmaModel(LlamaModel):\n    _no_split_modules = []",
    )
    convert(zoo)
    (finding,) = told(zoo, published)
    assert (finding["path"], finding["line"]) == (str(zoo / "models/gemma/modular_gemma.py"), 10)
    assert "2 models (gemma, phi)" in str(finding["message"])


@pytest.mark.parametrize("by_package", [False, True])
def test_heirs_that_are_out_of_date_are_converted_first(by_package: bool, zoo: Path) -> None:
    if by_package:  # which hands the parents on
        names = "from .configuration_llama import *\nfrom .modeling_llama import *\n"
        (zoo / "models/llama/__init__.py").write_text(names)
        for module in ("configuration_llama", "modeling_llama"):
            edit(zoo, "modular_gemma.py", f"from ..llama.{module} ", "from ..llama ")
        convert(zoo)
    commit(zoo, new=True)
    edit(zoo, "modeling_llama.py", "self.o_proj", "self.out_proj")
    (finding,) = told(zoo, "HEAD")
    assert "3 models (gemma, llama, phi), 3 keys" in str(finding["message"])
    assert "self.o_proj" in (zoo / "models/gemma/modeling_gemma.py").read_text()


def test_a_wheel_that_cannot_be_read_is_told(zoo: Path, tmp_path: Path) -> None:
    wheel = tmp_path / "zoo-1.0-py3-none-any.whl"
    wheel.write_text("no wheel")
    with pytest.raises(ConversionError) as told:
        older_tree(str(wheel), str(zoo / "models"), profile_settings(), None)
    assert "the wheel cannot be read: File is not a zip file" in str(told.value.findings[0].message)


def test_a_wheel_is_read_without_being_unpacked(published: Path, zoo: Path, tmp_path: Path) -> None:
    wheel = tmp_path / "zoo-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as file:
        for path in published.rglob("*.py"):
            file.write(path, str(path.relative_to(published.parent)))
    edit(zoo, "configuration_llama.py", 'model_type = "llama"', 'model_type = "lama"')
    assert [one["code"] for one in told(zoo, wheel, "llama")] == ["MC607"]


def test_what_is_not_known_is_said_where_its_words_change(published: Path, zoo: Path) -> None:
    edit(
        zoo, "modeling_llama.py", 'self.register_buffer("mask", None, persistent=False)', "self.act = made_by(config)"
    )
    assert [one["code"] for one in told(zoo, published)] == ["MC609"]


def test_a_property_with_a_setter_is_read_by_its_getter(published: Path, zoo: Path) -> None:
    both = "    @property\n    def width(self):\n        return self.hidden_size\n\n    @width.setter\n    def width(self, value):\n        pass\n"
    edit(
        zoo, "configuration_llama.py", "    num_hidden_layers: int = 2\n", "    num_hidden_layers: int = 2\n\n" + both
    )
    edit(zoo, "modeling_llama.py", "if config.hidden_size > 4", "if config.width is not None")
    convert(zoo)
    assert told(zoo, published) == []


def test_a_decorator_that_takes_the_old_name_breaks_no_call(published: Path, zoo: Path) -> None:
    renamed = '@deprecate_kwarg("past", new_name="cache")\n    def forward(self, input_ids, cache=None'
    edit(zoo, "modeling_llama.py", "def forward(self, input_ids, past=None", renamed)
    convert(zoo)
    assert told(zoo, published) == []


def test_findings_are_silenced_as_any(published: Path, zoo: Path) -> None:
    edit(zoo, "modeling_llama.py", '["LlamaAttention"]', "[]  # modular: ignore[MC616]")
    edit(zoo, "configuration_llama.py", "hidden_size (`int`", "width (`int`")
    (zoo / "pyproject.toml").write_text('[tool.modular-converter]\nignore = ["MC62"]\n')
    assert told(zoo, published) == []


def test_the_second_run_remembers_and_sees_edits(
    published: Path, zoo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MODULAR_CONVERTER_CACHE", str(tmp_path / "cache"))
    command = ("--breaking", "--against", str(published), "--format", "json")
    assert json.loads(run(zoo, *command).stdout) == []
    assert json.loads(run(zoo, *command).stdout) == []
    edit(zoo, "configuration_llama.py", "hidden_size: int = 8", "hidden_size: int = 9")
    convert(zoo)
    assert [one["code"] for one in json.loads(run(zoo, *command).stdout)] == ["MC606"]


def test_a_comment_tells_what_is_stale_and_what_changes(published: Path, zoo: Path) -> None:
    edit(zoo, "modeling_llama.py", "use_cache=True", "use_cache=False")
    result = run(zoo, "--breaking", "--against", str(published), "--markdown", "-", "--no-cache")
    assert "### 2 generated files out of date" in result.stdout
    assert "| MC615 |" in result.stdout and "| 1 |  | llama |" in result.stdout
    assert "+    def forward(self, input_ids, past=None, use_cache=False):" in result.stdout


def test_nothing_of_a_strangers_text_is_markdown(published: Path, zoo: Path) -> None:
    hostile = '"@team | <img src=x> ![a](https://b) `c` ```"'
    edit(zoo, "modeling_llama.py", "use_cache=True", f"use_cache={hostile}")
    text = run(zoo, "--breaking", "--against", str(published), "--markdown", "-", "--no-cache").stdout
    table = "\n".join(line for line in text.split("\n") if line.startswith("| MC"))
    assert "MC615" in table and not any(word in table for word in ("@", "<", "![", "://", "`"))
    assert "\n````diff\n" in text and len(text) < 60_001


@pytest.mark.parametrize(("name", "told"), [("no/x.md", "there is no folder"), ("taken", "MC113")])
def test_a_comment_that_cannot_be_written_is_told(name: str, told: str, published: Path, zoo: Path) -> None:
    (zoo / "taken").mkdir()
    result = run(zoo, "--breaking", "--against", str(published), "--markdown", str(zoo / name))
    assert (result.exit_code, told in result.stderr, "MC199" in result.stderr) == (2, True, False)


def test_an_option_that_has_no_meaning_is_called_as_it_was_written(zoo: Path) -> None:
    assert "does not go with --write" in run(zoo, "--breaking", "--against", "HEAD", "--write").stderr


@pytest.mark.parametrize("against", ["no-such-commit", "nothing.whl"])
def test_a_tree_that_cannot_be_read_is_told(against: str, zoo: Path) -> None:
    result = run(zoo, "--breaking", "--against", against)
    assert result.exit_code == 2
    assert "MC121" in result.stderr


def test_a_root_that_is_no_package_is_told_with_what_to_write(zoo: Path, tmp_path: Path) -> None:
    top = tmp_path / "repository"
    for name in ("one", "two"):
        shutil.copytree(zoo, top / "src" / name)
    commit(top, new=True)
    for root in (top, top / "src/one/models/llama"):
        result = run(root, "--breaking", "--against", "HEAD")
        assert result.exit_code == 2
        assert "MC121 cannot compare with `HEAD`: " in result.stderr
        assert "`--root` names a package, or its folder of models" in result.stderr
        assert "outside repository" not in result.stderr
    shutil.rmtree(top / "src/two")
    for root in (top, top / "src", top / "src/one", top / "src/one/models"):
        result = run(root, "--breaking", "--against", "HEAD")
        assert (result.exit_code, result.stdout) == (0, "")


PROCESSOR = """\
from typing import TypedDict

from ...processing_utils import Mixin


class LlamaImageKwargs(TypedDict, total=False):
    patch_size: int


class LlamaKwargs(TypedDict, total=False):
    images_kwargs: LlamaImageKwargs


class LlamaProcessor(Mixin):
    size = {"height": 224}
    patch_size = 14
    valid_kwargs = LlamaKwargs

    def __call__(self, text=None):
        return text


__all__ = ["LlamaProcessor"]
"""
MIXIN = "class Mixin:\n    do_resize = True\n"


@pytest.mark.parametrize(
    ("name", "old", "new", "message"),
    [
        ("processing_llama.py", "224", "336", "MC606 changes the default of `size` from `{'height': 224}` to `{'height': 336}`"),
        ("processing_llama.py", "    patch_size = 14\n", "", "MC605 removes the setting `patch_size`"),
        ("processing_llama.py", "    patch_size: int\n", "    pass\n", "MC605 no longer takes `patch_size` by name"),
        ("processing_llama.py", "= LlamaKwargs", "= LlamaImageKwargs", "MC605 no longer takes `images_kwargs` by name"),
        ("processing_utils.py", "True", "False", "MC606 changes the default of `do_resize` from `True` to `False`"),
        ("processing_llama.py", "    size =", "    _rest = 1\n    size =", ""),
    ],
)  # fmt: skip
def test_what_a_processor_has_and_takes_where_nothing_is_given(
    name: str, old: str, new: str, message: str, zoo: Path, tmp_path: Path
) -> None:
    (zoo / "models/llama/processing_llama.py").write_text(PROCESSOR)
    (zoo / "processing_utils.py").write_text(MIXIN)
    shutil.copytree(zoo, tmp_path / "older/zoo")
    edit(zoo, name, old, new)
    found = [f"{one['code']} {one['message']}" for one in told(zoo, tmp_path / "older/zoo")]
    assert any(one.startswith(message) for one in found) if message else not found, found


def test_a_part_with_a_number_in_its_name_is_told_apart(zoo: Path, tmp_path: Path) -> None:
    edit(zoo, "modeling_llama.py", "self.o_proj", "self.fc1 = nn.Linear(1, 1)\n        self.fc2")
    shutil.copytree(zoo, tmp_path / "older/zoo")
    edit(zoo, "modeling_llama.py", "self.fc2", "self.fc3")
    assert [str(one["message"])[:24] for one in told(zoo, tmp_path / "older/zoo")] == ["renames `fc2` to `fc3` i"]
    made = "for n in range(1, 4):\n            setattr(self, f'fc{n}', nn.Linear(1, 1))\n"
    edit(zoo, "modeling_llama.py", "self.fc1 = nn.Linear(1, 1)\n", made)
    assert not any("adds" in str(one["message"]) for one in told(zoo, tmp_path / "older/zoo"))
