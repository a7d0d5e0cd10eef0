"""Fixtures with real sandboxes for a test: fresh ones that are ready, and gone with their data afterwards.

    def test_it_installs(sandbox):
        assert sandbox.exec("pip", "install", "six").exit_code == 0

    @pytest.mark.sandbox(image="python:3.13", memory="1Gi")
    def test_with_another_image(sandbox): ...

The gateway is the one that HOLDFAST_GATEWAY names, else the active one. Not here: bringing a gateway up.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.sandbox.sdk import Sandbox, Sandboxes

GATEWAY_VARIABLE = "HOLDFAST_GATEWAY"
_LONGEST_PREFIX = 40


@pytest.fixture(scope="session")
def sandboxes() -> Iterator[Sandboxes]:
    """All sandboxes of the gateway, for tests that need several: `with sandboxes.fresh() as one, …`."""
    from holdfast.gateway.facade import Gateway
    from holdfast.gateway.spec import resolve_name

    name = resolve_name(os.environ.get(GATEWAY_VARIABLE) or None)
    with Gateway(name).sandboxes() as found:
        yield found


@pytest.fixture
def sandbox(request: pytest.FixtureRequest, sandboxes: Sandboxes) -> Iterator[Sandbox]:
    """One fresh sandbox that is ready; `@pytest.mark.sandbox(…)` says what it is to be."""
    marker = request.node.get_closest_marker("sandbox")
    options = dict(marker.kwargs) if marker is not None else {}
    with sandboxes.fresh(prefix=prefix_for(request.node.name), **options) as made:
        yield made


def prefix_for(test: str) -> str:
    """A test's name as the beginning of a sandbox's, so that one that was left behind tells whose it is."""
    plain = re.sub(r"[^a-z0-9]+", "-", test.lower()).strip("-")
    return plain[:_LONGEST_PREFIX].rstrip("-") or "test"


def pytest_configure(config: pytest.Config) -> None:
    """Make the mark known."""
    config.addinivalue_line("markers", "sandbox(**options): what the `sandbox` fixture makes")
