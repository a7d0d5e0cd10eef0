"""One request through a client: its timeout cut to the time left, new credentials after a 401, observed.

Used for each attempt of everything that talks to an API server. Not here: repeating it (`policy_table`).
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from holdfast.errors import ArgumentKindError
from holdfast.kube.chain import begun_while, handled_at
from holdfast.kube.credentials import Credentials, credentials_of
from holdfast.kube.harden import harden
from holdfast.kube.outcome import Done, classify, mark
from holdfast.kube.policy_table import DEFAULT, budget_of, policy_for
from holdfast.kube.redact import redact, withheld
from holdfast.kube.status import http_status
from holdfast.retry import Policy, causes, checks, current_deadline

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.kube.steps import Steps
    from holdfast.kube.telemetry import Observer
    from holdfast.kube.verbs import Method, Verb
    from holdfast.kube.writes import Write

DEFAULT_TIMEOUT = 30.0
_UNAUTHORIZED = 401
# A timeout of nothing would be taken for no timeout.
LEAST = 0.001


@dataclass(frozen=True, slots=True)
class Link:
    """A client and the terms on which it is used."""

    api_client: Any
    policy: Policy
    credentials: Credentials
    timeout: float = DEFAULT_TIMEOUT
    observers: tuple[Observer, ...] = ()
    policies: dict[tuple[Verb, str], Policy] = field(default_factory=dict)

    def policy_for(self, verb: Verb, operation: str) -> Policy:
        """The policy of one verb, made once."""
        key = (verb, operation)
        policy = self.policies.get(key)
        if policy is None:
            policy = self.policies[key] = policy_for(verb, self.policy, operation)
        return policy

    def timeout_now(self) -> float:
        """How long a request that begins now may take."""
        deadline = current_deadline()
        return self.timeout if deadline is None else max(LEAST, deadline.clip(self.timeout))

    def settle(self, error: Exception, method: Method, write: Write | None) -> Exception:
        """Make an error fit to leave: nothing secret in it, and what it says about the server's state."""
        for each in causes(error):
            redact(each, sensitive=method.sensitive, configuration=self.api_client.configuration)
        settled = withheld(error) if method.sensitive else error
        begun_while(settled, handled_at(error))
        if write is not None:
            mark(settled, Done.UNKNOWN if write.unknown else Done.NO)
        return settled


def check_terms(policy: Any, timeout: Any, observers: Any, refresh: Any = None) -> None:
    """Refuse terms that cannot be meant, each by its name."""
    if policy is not None and not isinstance(policy, Policy):
        raise ArgumentKindError("policy", f"must be a Policy, not {type(policy).__name__}")
    checks.seconds("timeout", timeout)
    if not isinstance(observers, tuple) or not all(map(callable, observers)):
        raise ArgumentKindError("observers", "must be a tuple of observers, such as (prometheus(),)")
    if refresh is not None and not callable(refresh):
        raise ArgumentKindError("refresh_credentials", f"must be callable, not {type(refresh).__name__}")


def link(
    api_client: Any,
    *,
    policy: Policy | None = None,
    timeout: float = DEFAULT_TIMEOUT,
    refresh: Callable[[], Any] | None = None,
    observers: tuple[Observer, ...] = (),
    largest_answer: int | None = None,
) -> Link:
    """Prepare a client and say how it is used; the budget is shared by all who talk to the same server."""
    harden(api_client, largest=largest_answer)
    base = DEFAULT if policy is None else policy
    if base.budget is None:
        base = base.with_(budget=budget_of(str(api_client.configuration.host)))
    return Link(api_client, base, credentials_of(api_client, refresh), timeout, observers)


def exchange(link: Link, method: Method, request: Callable[[float], Any]) -> Steps[Any]:
    """One attempt: `request` is given its timeout; a 401 is answered with new credentials, once."""
    handled = sys.exception()
    try:
        return (yield from _renewing(link, method, request))
    except Exception as error:
        begun_while(error, handled)
        raise


def _renewing(link: Link, method: Method, request: Callable[[float], Any]) -> Steps[Any]:
    generation = link.credentials.generation
    try:
        return (yield from _watched(link, method, request))
    except Exception as error:
        if http_status(error) != _UNAUTHORIZED:
            raise
        credentials = link.credentials
        renew = credentials.arenew if credentials.in_tasks else credentials.renew
        if not (yield partial(renew, generation)):
            raise
    return (yield from _watched(link, method, request))


def _watched(link: Link, method: Method, request: Callable[[float], Any]) -> Steps[Any]:
    ask = partial(request, link.timeout_now())
    if not link.observers:
        return (yield ask)
    endings = [begin(method.verb.value, method.resource) for begin in link.observers]
    outcome = "cancelled"
    try:
        result = yield ask
        outcome = "ok"
    except Exception as error:
        outcome = classify(error).value
        raise
    else:
        return result
    finally:
        for end in endings:
            end(outcome)
