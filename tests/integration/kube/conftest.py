"""What these tests share: clients through the fault kit, the mix of faults, and how errors are read."""

from __future__ import annotations

import pytest

from holdfast.testing.faults import Fault, rule

# Faults after which a call still succeeds. Those that may follow a commit are listed twice.
TRANSIENT_FAULTS = [
    "reset-before",
    "reset-after",
    "reset-after",
    "truncated",
    Fault(kind="stall-headers", seconds=0.2, commit=True),
    Fault(kind="stall-headers", seconds=0.2),
    Fault(kind="stall-body", seconds=0.2),
    Fault(kind="slow", seconds=0.1),
    *(
        Fault(kind=kind, commit=commit)
        for kind in (
            "request-timeout",
            "internal-error",
            "leader-changed",
            "server-timeout",
            "bad-gateway",
            "gateway-timeout",
        )
        for commit in (True, False)
    ),
    Fault(kind="too-many-requests", retry_after=("0", "-5", "", "soon", "date:-30", "absent")),
    Fault(kind="unavailable", retry_after=("0", "-5", "", "soon", "date:-30", "absent")),
]


@pytest.fixture
def thirty_percent_faults():
    """30 % faults over all requests."""
    return rule(*TRANSIENT_FAULTS, name="mix", probability=0.3)


@pytest.fixture
def classify_bare_client_error():
    """What a caller of the bare client has to go by: an answer that refuses, or no answer."""

    def judge(call, error):
        status = getattr(error, "status", None)
        if status == 404 and call.verb == "read":
            return "absent", ""
        return ("not done", f"HTTP {status}") if status else ("unknown", type(error).__name__)

    return judge


@pytest.fixture
def print_result(capsys):
    """Print figures so that they are seen although the test passes."""

    def spoken(line):
        with capsys.disabled():
            print(f"\n    {line}", end="")  # noqa: T201

    return spoken
