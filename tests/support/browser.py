"""A real browser without a window: Chromium, which draws a page and hands back what became of it."""
import shutil
import subprocess
from pathlib import Path

import pytest

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="no chromium on PATH (package chromium)")


class Browser:
    """`dom(address)`: the page after two seconds of its life; `complaints` are what it has noted about errors."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.complaints: list[str] = []

    def dom(self, address: str) -> str:
        """The page, with all that its scripts made of it."""
        return self._run(address, "--dump-dom")

    def picture(self, address: str, out: Path, width: int = 1280, height: int = 900) -> None:
        """A picture (PNG) of the page."""
        self._run(address, f"--screenshot={out}", "--hide-scrollbars", f"--window-size={width},{height}")

    def _run(self, address: str, *arguments: str) -> str:
        assert CHROMIUM is not None
        done = subprocess.run(
            [CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
             "--disable-background-networking", "--disable-component-update", "--disable-sync",
             f"--user-data-dir={self._folder}", "--enable-logging=stderr", "--window-size=1280,900",
             "--virtual-time-budget=4000", *arguments, address],
            capture_output=True, text=True, timeout=600, check=True)
        self.complaints += [line for line in done.stderr.splitlines() if "CONSOLE" in line]
        return done.stdout
