"""The extension for VS Code: its own tests, against the language server of this checkout."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest


EXTENSION = Path(__file__).parents[2] / "editors/vscode"


@pytest.mark.skipif(shutil.which("node") is None, reason="node runs the extension")
def test_the_extension_shows_what_the_server_says() -> None:
    command = json.dumps([sys.executable, "-m", "modular_converter", "lsp"])
    environment = {**os.environ, "MODULAR_CONVERT": command}
    tests = ["node", "--test", "test/extension.test.js"]
    done = subprocess.run(tests, cwd=EXTENSION, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout
    assert "# skipped 0" in done.stdout and "# pass 0" not in done.stdout


def test_the_version_is_that_of_the_tool() -> None:
    from modular_converter.version import __version__

    assert json.loads((EXTENSION / "package.json").read_text())["version"] == __version__
