"""Configuration of all tests: Ctrl-C, hypothesis without deadlines, and the distribution of test files."""

import signal

import pytest
from hypothesis import settings

settings.register_profile("no clock", deadline=None)
settings.load_profile("no clock")


@pytest.fixture(scope="session", autouse=True)
def enable_sigint():
    """Restore SIGINT, which a shell makes pytest and its children ignore in the background."""
    before = signal.getsignal(signal.SIGINT)
    if before is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Assign whole files; few workers run files with gateways at the same time."""
    from tests.support.xdist_scheduler import GatewayScheduling

    return GatewayScheduling(config, log) if config.getvalue("dist") == "loadfile" else None
