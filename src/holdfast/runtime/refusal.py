"""The one error of the runtime: a request that is answered with a status and a sentence."""

from __future__ import annotations


class Refusal(Exception):  # noqa: N818 (an answer, told apart from what breaks)
    """A request cannot be served as it is."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
