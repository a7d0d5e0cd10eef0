"""`python -m holdfast.containers.ping [--wait SECONDS]`: exit 0 when a container engine answers.

For scripts that bring an engine up; prints why when it does not.
"""

from __future__ import annotations

import sys

from holdfast.containers.engine import connect
from holdfast.errors import EngineUnreachableError, HoldfastError
from holdfast.retry import Policy, exponential


def main(args: list[str]) -> int:
    """Ask once, or until the time is up."""
    try:
        if len(args) == 2 and args[0] == "--wait":  # noqa: PLR2004 (the option and its value)
            patient = Policy(
                attempts=None,
                deadline=float(args[1]),
                backoff=exponential(0.1, cap=1),
                retry_on=EngineUnreachableError,
            )
            patient.call(connect)
        else:
            connect()
    except HoldfastError as error:
        sys.stderr.write(f"{error.message}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
