"""Pages as a browser has them."""

import subprocess
from pathlib import Path

import pytest
from conftest import PATIENCE_S, program


def rendered(folder: Path) -> str:
    """report.html of a folder as Chromium has it, when its scripts have run."""
    chromium = program("chromium")
    argv = [chromium, "--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder / 'profile'}"]
    argv += ["--dump-dom", (folder / "report.html").as_uri()]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    if "</html>" not in done.stdout:
        pytest.skip(f"Chromium shows nothing here: {done.stderr[-200:]}")
    return done.stdout
