"""`python -m holdfast.remote.ping [--wait SECONDS]`: exit with 0 if the container engine answers.

For scripts that start an engine; prints the error otherwise.
"""

from __future__ import annotations

import sys

from holdfast.errors import ContainerEngineUnreachableError, HoldfastError
from holdfast.remote.container_engine import connect
from holdfast.retry import Policy, exponential


def main(args: list[str]) -> int:
    """Connect once, or retry until the engine answers or the time is up; return the exit code."""
    seconds = float(args[1]) if len(args) == 2 and args[0] == "--wait" else 0.0  # noqa: PLR2004
    policy = Policy(
        attempts=None if seconds else 1,
        deadline=seconds or None,
        backoff=exponential(0.1, cap=1),
        retry_on=ContainerEngineUnreachableError,
    )
    try:
        policy.call(connect)
    except HoldfastError as error:
        sys.stderr.write(f"{error.message}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
