"""Pages as a browser renders them."""

import subprocess
from pathlib import Path

import pytest
from conftest import PATIENCE_S, program


def rendered(folder: Path) -> str:
    """Returns report.html of a directory as Chromium renders it, after its scripts."""
    chromium = program("chromium")
    argv = [chromium, "--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder / 'profile'}"]
    argv += ["--dump-dom", (folder / "report.html").as_uri()]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    if "</html>" not in done.stdout:
        pytest.skip(f"Chromium shows nothing here: {done.stderr[-200:]}")
    return done.stdout
