"""Take the pictures of the documentation: `python utils/take_pictures.py [graph] [advice] [site] [editor]`.

`docs/pictures/graph.png` is the page of `modular-convert graph --package transformers` with llama selected,
`docs/pictures/advice.png` that of `modular-plan advise` with the command of docs/advise.md,
`docs/pictures/site.png` the start of the built site, all in chromium, and `docs/pictures/editor.png` a modular file in
Neovim. On Debian: `apt-get install --no-install-recommends chromium neovim-qt xvfb imagemagick fonts-dejavu-core`. Look
at them before they are committed.
"""

from __future__ import annotations

import functools
import http.server
import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import threading
import time


ROOT = pathlib.Path(__file__).resolve().parents[1]
PICTURES = ROOT / "docs/pictures"
SIZE = "1400,860"
ADVISED = "mistral --devices 2x8xH100-80GB --batch 64 --sequence 4096"


def take(address: str, name: str, size: str = SIZE) -> None:
    """Save what a browser shows at an address in a window of this size."""
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if browser is None:
        raise SystemExit("no browser on the PATH: install chromium")
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--virtual-time-budget=5000"]
    subprocess.run(
        [browser, *options, f"--window-size={size}", f"--screenshot={PICTURES / name}", address],
        check=True,
        stderr=subprocess.DEVNULL,
    )


def take_graph(folder: pathlib.Path) -> None:
    """The page of the graph."""
    graph = [sys.executable, "-m", "modular_converter", "graph", "--package", "transformers"]
    subprocess.run([*graph, "--output", str(folder / "graph.html")], check=True)
    take(f"{(folder / 'graph.html').as_uri()}#model=llama", "graph.png")


def take_advice(folder: pathlib.Path) -> None:
    """The page of the advice."""
    advise = [sys.executable, "-m", "modular_converter.parallel.cli", "advise", *ADVISED.split(), "--format", "html"]
    page = folder / "advice.html"
    page.write_bytes(subprocess.run(advise, check=True, stdout=subprocess.PIPE).stdout)
    take(page.as_uri(), "advice.png", "1080,1640")


def take_site(folder: pathlib.Path) -> None:
    """The start of the site."""
    shutil.copytree(ROOT / "docs", folder / "docs")
    shutil.copy(ROOT / "zensical.toml", folder)
    subprocess.run([sys.executable, "-m", "zensical", "build"], cwd=folder, check=True)
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=os.fspath(folder / "site"))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        take(f"http://127.0.0.1:{server.server_port}/", "site.png")
        server.shutdown()


def take_editor(folder: pathlib.Path) -> None:
    """The modular file of mistral in Neovim, with a line that its parent makes pointless, and a generated class."""
    spec = importlib.util.find_spec("transformers")
    assert spec is not None and spec.origin is not None
    done, display = folder / "done", ":77"
    environment = {
        **os.environ,
        "DISPLAY": display,
        "XDG_RUNTIME_DIR": os.fspath(folder),
        "PICTURE_SERVER": os.fspath(pathlib.Path(sys.executable).with_name("modular-convert")),
        "PICTURE_BELOW": "super().__init__(config)",
        "PICTURE_LINE": "        del self.gate",
        "PICTURE_CLASS": "MistralMLP",
        "PICTURE_DONE": os.fspath(done),
    }
    window = ["nvim-qt", "--nofork", "--no-ext-tabline", "--geometry", SIZE.replace(",", "x")]
    vim = ["--clean", "-u", os.fspath(ROOT / "utils/picture_of_editor.lua")]
    models = pathlib.Path(spec.origin).parent / "models"
    screen = subprocess.Popen(["Xvfb", display, "-screen", "0", SIZE.replace(",", "x") + "x24"])
    time.sleep(2)
    editor = subprocess.Popen([*window, "mistral/modular_mistral.py", "--", *vim], cwd=models, env=environment)
    try:
        for _ in range(120):
            if done.exists():
                break
            time.sleep(0.5)
        else:
            raise SystemExit("the editor has shown nothing in a minute")
        subprocess.run(["import", "-window", "root", os.fspath(PICTURES / "editor.png")], check=True, env=environment)
    finally:
        editor.terminate()
        screen.terminate()


TAKEN = {"graph": take_graph, "advice": take_advice, "site": take_site, "editor": take_editor}


def main() -> None:
    """Take all pictures, or those that are named."""
    PICTURES.mkdir(exist_ok=True)
    for name in sys.argv[1:] or TAKEN:
        with tempfile.TemporaryDirectory() as folder:
            TAKEN[name](pathlib.Path(folder))


if __name__ == "__main__":
    main()
