"""Debian's chromium under Playwright, and axe-core from npm."""

from __future__ import annotations

import base64
import hashlib
import shutil
import subprocess
import tarfile
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.home import cache_dir, write_atomic

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Page

CHROMIUM = shutil.which("chromium")
_AXE = "axe-core@4.14.0"
_AXE_SHA512 = "9WTZxEjsZ7b13TH8JPmbV2z8CHbl80/2hm3XPEG4JgNdQLK81IBRXmSxHfMAOkSqQeRxT/0dwNDz2GOm3zzpcQ=="
_SERIOUS = {"serious", "critical"}


@contextmanager
def chromium() -> Iterator[Browser]:
    """Start a browser without a sandbox of its own, because tests run as root."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


def axe_source() -> str:
    """Return the script of axe-core; npm fetches it once into the cache of holdfast."""
    path = cache_dir() / "tests" / f"{_AXE.replace('@', '-')}.js"
    if not path.exists():
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run(
                ["npm", "pack", "--silent", "--ignore-scripts", _AXE], cwd=folder, check=True, timeout=300,
                stdout=subprocess.DEVNULL,
            )  # fmt: skip
            (archive,) = Path(folder).glob("*.tgz")
            digest = base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode()
            assert digest == _AXE_SHA512, f"{_AXE}: unexpected content"
            with tarfile.open(archive) as files:
                script = files.extractfile("package/axe.min.js")
                assert script is not None
                write_atomic(path, script.read())
    return path.read_text()


def serious_findings(page: Page) -> list[str]:
    """Return the serious and critical findings of axe-core on the page as it is now."""
    # The policy of the page forbids added scripts; Playwright evaluates this one outside of the policy.
    page.evaluate(axe_source())
    violations = page.evaluate("async () => (await axe.run()).violations")
    return [
        f"{each['id']}: {each['help']}: {[node['target'] for node in each['nodes']][:3]}"
        for each in violations
        if each["impact"] in _SERIOUS
    ]
