"""What `modular-plan write` leaves alone or refuses: nothing is written then."""

from __future__ import annotations

import shutil

import pytest
from click.testing import CliRunner

from modular_converter.parallel import source as settling  # noqa: E402
from modular_converter.parallel.cli import main  # noqa: E402
from modular_converter.parallel.plans.plan import Plan  # noqa: E402
from modular_converter.parallel.proof.judge import Verdict  # noqa: E402
from tests.parallel.source.test_write_source import EMU, UNPROVEN


@pytest.mark.parametrize("option", ["--dry-run", pytest.param("--diff", marks=pytest.mark.slow)])
def test_nothing_is_written_when_only_asked(option, zoo):
    here = zoo("llama")
    here.put("modular_emu.py", EMU)
    before = here.files()
    code, said = here.write("modular_emu.py", UNPROVEN, option)
    assert code == 1
    assert here.files() == before
    assert ("modular_emu.py: would change" in said) == (option == "--dry-run")
    assert ('+        "layers.*.mlp.up_proj": "colwise",' in said) == (option == "--diff")


def test_generated_files_can_be_left(zoo):
    here = zoo("llama")
    here.put("modular_emu.py", EMU)
    assert here.write("modular_emu.py", UNPROVEN, "--no-convert")[0] == 0
    assert "base_model_tp_plan" in here.text("modular_emu.py")
    assert not (here.models / "emu" / "configuration_emu.py").exists()


def test_a_refused_plan_is_not_written(zoo, one_pool, monkeypatch):
    here = zoo("bert")
    here.drop_plans("configuration_bert.py")
    before = here.files()
    monkeypatch.setattr(
        settling, "prove", lambda *a, **k: Verdict(2, 1.0, 1.0, "encoder.layer.0.output.dense", "it differs by 1")
    )
    code, said = here.write("modeling_bert.py")
    assert code == 2
    assert "BertModel: the plan is refused on its ranks: encoder.layer.0.output.dense: it differs by 1" in said
    assert "--unverified" in said
    assert here.files() == before


def test_what_does_not_convert_is_not_written(zoo):
    here = zoo("llama")
    here.put("modular_emu.py", EMU.replace("modeling_llama", "modeling_lama"))
    before = here.files()
    code, said = here.write("modular_emu.py", UNPROVEN)
    assert code == 2
    assert "it cannot be converted" in said and "modeling_lama" in said
    assert here.files() == before


def test_a_link_out_of_the_folder_is_not_followed(zoo, tmp_path):
    here = zoo("bert")
    here.drop_plans("configuration_bert.py")
    outside = tmp_path / "configuration_bert.py"
    shutil.move(here.path("configuration_bert.py"), outside)
    here.path("configuration_bert.py").symlink_to(outside)
    before = outside.read_text()
    code, said = here.write("modeling_bert.py", UNPROVEN)
    assert code == 2, said
    assert outside.read_text() == before


def test_an_installed_package_is_never_written():
    done = CliRunner().invoke(main, ["write", "bert"])
    assert done.exit_code == 2
    assert "belongs to an installed package" in done.output


def test_a_plan_beyond_the_librarys_vocabulary_goes_to_json(zoo, tmp_path, one_pool):
    """Heads stored as an integer that must shrink: no style says so."""
    here = zoo("bert")
    here.drop_plans("configuration_bert.py")
    here.edit("modeling_bert.py", "heads = (batch_size, length, -1,", "heads = (batch_size, length, self.number,")
    here.edit(
        "modeling_bert.py",
        "        self.scaling = ",
        "        self.number = config.num_attention_heads\n        self.scaling = ",
    )
    code, said = here.write("modeling_bert.py")
    assert code == 2
    assert "transformers' vocabulary cannot say this plan; `--json FILE` writes it" in said
    assert "an integer that must shrink" in said
    target = tmp_path / "plan.json"
    code, said = here.write("modeling_bert.py", "--json", str(target))
    assert code == 0, said
    assert Plan.from_json(target.read_text()).attributes
