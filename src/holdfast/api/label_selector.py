"""Label selectors as in kubectl, such as `team=blue,tier in (web, db),!old`."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from msgspec import Meta

from holdfast.api import rest_models

MAX_SELECTOR_LENGTH = 2048
_PART, _DOMAIN_PART = rest_models.LABEL_PART, rest_models.DOMAIN_PART
_KEY = f"({_DOMAIN_PART}([.]{_DOMAIN_PART}){{0,9}}/)?{_PART}"
# The spaces belong to the optional value: with spaces on both sides of an empty value, the time to reject a
# selector would be exponential in its requirements.
_EQUALITY = f" *(=|==|!=)( *{_PART})?"
_SET = f" +(in|notin) *[(] *{_PART}( *, *{_PART}){{0,63}} *[)]"
_REQUIREMENT = f"({_KEY}({_EQUALITY}|{_SET})?|! *{_KEY})"
SELECTOR_PATTERN = f"^ *{_REQUIREMENT}( *, *{_REQUIREMENT}){{0,9}} *{rest_models.END_OF_TEXT}"
"""At most ten requirements, separated by commas, which all have to be met."""

LabelSelector: TypeAlias = Annotated[
    str, Meta(min_length=1, max_length=MAX_SELECTOR_LENGTH, pattern=SELECTOR_PATTERN)
]
