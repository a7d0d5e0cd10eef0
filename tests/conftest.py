"""For all tests: Ctrl-C means Ctrl-C, whoever started them, and a busy machine is no wrong result."""

import signal

import pytest
from hypothesis import settings

settings.register_profile("no clock", deadline=None)
settings.load_profile("no clock")


@pytest.fixture(scope="session", autouse=True)
def interrupts_are_heard():
    """A shell that runs pytest in the background has it ignore SIGINT, and its children with it."""
    before = signal.getsignal(signal.SIGINT)
    if before is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
