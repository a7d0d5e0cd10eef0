"""For all tests: Ctrl-C means Ctrl-C, a busy machine is no wrong result, and who runs which file."""

import signal

import pytest
from hypothesis import settings

settings.register_profile("no clock", deadline=None)
settings.load_profile("no clock")


@pytest.fixture(scope="session", autouse=True)
def enable_sigint():
    """A shell that runs pytest in the background has it ignore SIGINT, and its children with it."""
    before = signal.getsignal(signal.SIGINT)
    if before is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Files as a whole, those with gateways on few workers at a time."""
    from tests.support.xdist_scheduler import GatewayScheduling

    return GatewayScheduling(config, log) if config.getvalue("dist") == "loadfile" else None
