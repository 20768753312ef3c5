"""Take the pictures of the documentation with a browser: `python utils/take_pictures.py`, with chromium on the PATH.

`docs/pictures/graph.png` is the page of `modular-convert graph --package transformers` with llama selected, and
`docs/pictures/site.png` the start of the built site. Look at them before they are committed.
"""

from __future__ import annotations

import functools
import http.server
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import threading


ROOT = pathlib.Path(__file__).resolve().parents[1]
PICTURES = ROOT / "docs/pictures"
SIZE = "1400,860"


def take(address: str, name: str) -> None:
    """Save what a browser shows at an address."""
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if browser is None:
        raise SystemExit("no browser on the PATH: install chromium")
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--virtual-time-budget=5000"]
    subprocess.run(
        [browser, *options, f"--window-size={SIZE}", f"--screenshot={PICTURES / name}", address],
        check=True,
        stderr=subprocess.DEVNULL,
    )


def main() -> None:
    """Take all pictures."""
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        graph = [sys.executable, "-m", "modular_converter", "graph", "--package", "transformers"]
        subprocess.run([*graph, "--output", str(folder / "graph.html")], check=True)
        take(f"{(folder / 'graph.html').as_uri()}#model=llama", "graph.png")
        shutil.copytree(ROOT / "docs", folder / "docs")
        shutil.copy(ROOT / "zensical.toml", folder)
        subprocess.run([sys.executable, "-m", "zensical", "build"], cwd=folder, check=True)
        handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=os.fspath(folder / "site"))
        with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            take(f"http://127.0.0.1:{server.server_port}/", "site.png")
            server.shutdown()


if __name__ == "__main__":
    main()
