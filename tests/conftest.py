"""For all tests: Ctrl-C means Ctrl-C, whoever started them."""

import signal

import pytest


@pytest.fixture(scope="session", autouse=True)
def interrupts_are_heard():
    """A shell that runs pytest in the background has it ignore SIGINT, and its children with it."""
    before = signal.getsignal(signal.SIGINT)
    if before is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
