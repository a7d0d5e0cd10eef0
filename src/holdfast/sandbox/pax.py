"""The records of a pax header, read strictly: for whoever checks an archive before others unpack it.

Not here: what a record means, and the words of the refusal.
"""

from __future__ import annotations

_LONGEST_LENGTH = 20


def records(content: bytes) -> dict[str, str]:
    """Each key and its value; ValueError for what two readers could read in two ways."""
    found: dict[str, str] = {}
    at = 0
    while at < len(content):
        digits, space, _ = content[at : at + _LONGEST_LENGTH].partition(b" ")
        length = int(digits) if space and digits.isdigit() else 0
        record = content[at : at + length]
        key, equals, value = record[len(digits) + 1 : -1].partition(b"=")
        is_whole = len(digits) + 1 < length == len(record) and record[-1:] == b"\n"
        if not (is_whole and equals) or b"\0" in key:
            raise ValueError("a pax header cannot be read")
        found[key.decode("utf-8", "replace")] = value.decode("utf-8", "surrogateescape")
        at += length
    return found
