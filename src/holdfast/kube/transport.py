"""Requests to an API server: session, timeout, credential renewal, retries, and the errors they raise.

The coroutines serve sync clients as well, through `client.run_sync`
(docs/decisions/0100-sync-and-async.md). `retry_table` decides which requests are repeated.
"""

from __future__ import annotations

import inspect
import json
import sys
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from types import CoroutineType
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

from holdfast.errors import (
    ApiRequestRejectedError,
    ArgumentTypeError,
    HoldfastError,
    ObjectConflictError,
    OperationCancelledError,
    OutcomeUnknownError,
    RedactedError,
    TemporaryError,
)
from holdfast.kube.client import ClientCredentials, credentials_for, run_sync
from holdfast.kube.client_limits import apply_client_limits, clip_to_deadline, is_async_client
from holdfast.kube.failures import (
    FailureClass,
    WriteOutcome,
    classify,
    describe,
    enclosing_error,
    http_status,
    is_tls_trust_error,
    parse_status,
    record_enclosing_error,
    record_write_outcome,
    request_causes,
    retry_after_seconds,
    write_outcome,
)
from holdfast.kube.rest_client import AsyncRestClient, RestClient
from holdfast.kube.retry_table import DEFAULT_POLICY, ApiMethod, Verb, budget_for_host, is_retryable
from holdfast.retry import Policy, argument_checks

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from holdfast.kube.idempotency import PendingWrite
    from holdfast.kube.rest_client import ApiRequest, EventStream
    from holdfast.kube.rest_mapping import ObjectReference
    from holdfast.kube.telemetry import Observer

R = TypeVar("R")

# Takes a timeout. Returns a coroutine, or the response itself if it blocks.
RequestFunction: TypeAlias = "Callable[[float], Any]"
Effect: TypeAlias = Literal["created", "adopted", "unchanged", "changed", "deleted", "absent"]

DEFAULT_TIMEOUT = 30.0
_READ_VERBS = {Verb.READ, Verb.QUERY}
_HIDDEN = "<hidden>"
_MAX_MESSAGE_LENGTH = 300
_TLS_TRUST_HINT = "Check the certificate authority and the client certificate in the kubeconfig."


# Sessions and requests -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ApiSession:
    """A client and the options it is used with."""

    api_client: Any
    policy: Policy
    credentials: ClientCredentials
    rest_client: RestClient
    timeout: float = DEFAULT_TIMEOUT
    observers: tuple[Observer, ...] = ()
    policy_cache: dict[tuple[Verb, str], Policy] = field(default_factory=dict)

    def policy_for(self, verb: Verb, operation: str) -> Policy:
        """The caller's policy with the retry rules of a verb; cached."""
        key = (verb, operation)
        policy = self.policy_cache.get(key)
        if policy is None:
            policy = self.policy_cache[key] = self.policy.replace(
                retry_on=partial(is_retryable, verb),
                retry_after=retry_after_seconds,
                describe=describe,
                operation=operation,
            )
        return policy

    async def send(self, request: ApiRequest) -> dict[str, Any]:
        """Send a request once and return the object in its response."""
        response: dict[str, Any] = await self.attempt(request.method, partial(self.rest_client.send, request))
        return response

    async def stream(self, request: ApiRequest, idle_timeout: float) -> EventStream:
        """Open a watch; the stop event of the policy ends it."""
        stop = self.policy.stop
        stream: EventStream = await self.attempt(
            request.method, lambda timeout: self.rest_client.stream(request, (timeout, idle_timeout), stop)
        )
        return stream

    async def attempt(self, method: ApiMethod, request: RequestFunction, *, is_renewed: bool = False) -> Any:
        """One attempt: call `request` with its timeout; renew the credentials and repeat it after a 401."""
        # If the caller is inside an `except` block, Python adds that exception to the chain of every error
        # raised here. It must not affect the classification.
        enclosing = sys.exception()
        # Read before the request: a 401 for credentials that were replaced meanwhile needs no refresh.
        generation = self.credentials.generation
        finishers = [begin(method.verb.value, method.resource) for begin in self.observers]
        # Remains for errors that are not an Exception: cancellation of the task and Ctrl-C.
        outcome = "cancelled"
        try:
            response = request(clip_to_deadline(self.timeout))
            result = await response if isinstance(response, CoroutineType) else response
            outcome = "ok"
            return result  # noqa: TRY300
        except Exception as error:
            record_enclosing_error(error, enclosing)
            outcome = classify(error).value
            if is_renewed or not await self._renew_credentials(error, generation):
                raise
        finally:
            for finish in finishers:
                finish(outcome)
        return await self.attempt(method, request, is_renewed=True)

    def attempt_blocking(self, method: ApiMethod, request: RequestFunction) -> Any:
        """`attempt` with a sync client, without a coroutine: it would cost more than the retries do."""
        enclosing, generation = sys.exception(), self.credentials.generation
        if self.observers:
            return run_sync(self.attempt(method, request))
        try:
            return request(clip_to_deadline(self.timeout))
        except Exception as error:
            record_enclosing_error(error, enclosing)
            if not run_sync(self._renew_credentials(error, generation)):
                raise
        return run_sync(self.attempt(method, request, is_renewed=True))

    async def _renew_credentials(self, error: Exception, generation: int) -> bool:
        """Renew rejected credentials; return whether the request can be repeated."""
        if http_status(error) != HTTPStatus.UNAUTHORIZED:
            return False
        try:
            return await self.credentials.renew(generation)
        except Exception as failure:  # noqa: BLE001 - the caller gets the 401
            # The message of another error could quote a credential.
            reason = failure if isinstance(failure, HoldfastError) else type(failure).__name__
            error.add_note(f"credentials not renewed: {reason}")
            return False

    async def request(self, action: str, reference: ObjectReference, request: ApiRequest) -> dict[str, Any]:
        """Send a request that changes nothing, with retries; see `call`."""
        return await self.call(request.verb, action, reference, partial(self.send, request))

    async def call(
        self,
        verb: Verb,
        action: str,
        reference: ObjectReference,
        attempt: Callable[[], Coroutine[Any, Any, R]],
        *,
        write: PendingWrite | None = None,
        **overrides: Any,
    ) -> R:
        """Run attempts under the policy of a verb.

        Args:
            verb: Decides which errors are retried.
            action: What the call does, for error messages and events.
            reference: The object or collection, for error messages.
            attempt: Makes one attempt, usually with `send`.
            write: What is known about the write; None for reads.
            overrides: Fields of the policy to replace.

        Raises:
            HoldfastError: Every error of the client and the server is translated.
        """
        policy = self.policy_for(verb, f"{action} {reference.kind}")
        if overrides:
            policy = policy.replace(**overrides)
        try:
            return await self.run(policy, attempt)
        except Exception as error:
            # Redact first: the translated error quotes the message of the server.
            redacted = self.finalize_error(error, ApiMethod(verb, reference.kind.lower()), write)
            final = translate_error(redacted, action, reference, is_write=verb not in _READ_VERBS)
            if final is error:
                raise
        # Raised outside `except`: an error that was replaced may quote a secret. As the cause or the context
        # of the new one, it would appear in tracebacks.
        raise final from (None if final is redacted else redacted)

    async def run(self, policy: Policy, attempt: Callable[[], Coroutine[Any, Any, R]]) -> R:
        """Run attempts under a policy; with a sync client, block this thread in attempts and between them."""
        if is_async_client(self.api_client):
            return await policy.acall(attempt)
        return policy.call(lambda: run_sync(attempt()))

    def finalize_error(self, error: Exception, method: ApiMethod, write: PendingWrite | None) -> Exception:
        """Remove secrets from an error and record the outcome of the write; returns the error to raise."""
        # In place: the exceptions stay in the cause chain, and tracebacks print the body of an ApiException.
        for each in request_causes(error):
            _redact_in_place(each, sensitive=method.is_sensitive, configuration=self.api_client.configuration)
        final = _redacted_error(error) if method.is_sensitive else error
        record_enclosing_error(final, enclosing_error(error))
        if write is not None:
            record_write_outcome(
                final, WriteOutcome.UNKNOWN if write.maybe_applied else WriteOutcome.NOT_DONE
            )
        return final


def open_session(
    api_client: Any,
    *,
    policy: Policy | None = None,
    timeout: float = DEFAULT_TIMEOUT,
    refresh_credentials: Callable[[], Any] | None = None,
    observers: tuple[Observer, ...] = (),
    max_response_bytes: int | None = None,
) -> ApiSession:
    """Check the options of `resilient`, and apply the limits to a client.

    All sessions to one server share a retry budget.

    Raises:
        InvalidArgumentError: An option has the wrong type or value.
    """
    if policy is not None and not isinstance(policy, Policy):
        raise ArgumentTypeError("policy", f"must be a Policy, not {type(policy).__name__}")
    argument_checks.check_seconds("timeout", timeout)
    if not isinstance(observers, tuple) or not all(map(callable, observers)):
        raise ArgumentTypeError("observers", "must be a tuple of observers, such as (prometheus(),)")
    if refresh_credentials is not None and not callable(refresh_credentials):
        raise ArgumentTypeError(
            "refresh_credentials", f"must be callable, not {type(refresh_credentials).__name__}"
        )
    if inspect.iscoroutinefunction(refresh_credentials) and not is_async_client(api_client):
        raise ArgumentTypeError("refresh_credentials", "must be a plain function for a sync client")
    if max_response_bytes is not None:
        argument_checks.check_count("max_response_bytes", max_response_bytes)
    apply_client_limits(api_client, max_response_bytes=max_response_bytes)
    base = DEFAULT_POLICY if policy is None else policy
    if base.budget is None:
        base = base.replace(budget=budget_for_host(str(api_client.configuration.host)))
    credentials = credentials_for(api_client, refresh_credentials)
    rest_client = (AsyncRestClient if is_async_client(api_client) else RestClient)(api_client)
    return ApiSession(api_client, base, credentials, rest_client, timeout, observers)


# Results and errors ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OperationResult:
    """What an operation of `Objects` did, and the object as the server returned it."""

    effect: Effect
    object: dict[str, Any] = field(repr=False)

    @property
    def name(self) -> str:
        return str(self.object.get("metadata", {}).get("name", ""))

    @property
    def uid(self) -> str | None:
        uid = self.object.get("metadata", {}).get("uid")
        return uid if isinstance(uid, str) else None


def translate_error(
    error: Exception, action: str, reference: ObjectReference, *, is_write: bool
) -> Exception:
    """The equivalent error of `holdfast.errors`.

    The message contains the server's message, shortened, except for Secrets.
    """
    if isinstance(error, OperationCancelledError):
        return error
    if isinstance(error, HoldfastError) and classify(error) is FailureClass.DEFINITE:
        return error
    message = f"{action} {reference}: {describe(error)}{_server_message(error, reference)}"
    if is_write and write_outcome(error) is WriteOutcome.UNKNOWN:
        return OutcomeUnknownError(message, cause=error)
    if classify(error) is not FailureClass.DEFINITE:
        return TemporaryError(message, cause=error)
    if http_status(error) == HTTPStatus.CONFLICT:
        return ObjectConflictError(message, cause=error)
    hint = _TLS_TRUST_HINT if is_tls_trust_error(error) else None
    is_local = http_status(error) is None and hint is None
    return error if is_local else ApiRequestRejectedError(message, hint=hint, cause=error)


def _server_message(error: Exception, reference: ObjectReference) -> str:
    if reference.kind == "Secret":
        return ""
    message = parse_status(error).message.replace("\n", " ")[:_MAX_MESSAGE_LENGTH]
    return f": {message}" if message else ""


def _redacted_error(error: Exception) -> Exception:
    """Replace errors of parsers and validators: their messages quote the input."""
    if isinstance(error, HoldfastError) or not isinstance(
        error, ValueError | TypeError | AttributeError | LookupError
    ):
        return error
    redacted = RedactedError(f"{type(error).__name__}; the message is hidden because it may quote a secret")
    for note in getattr(error, "__notes__", []):
        redacted.add_note(note)
    return redacted


def _redact_in_place(error: BaseException, *, sensitive: bool, configuration: Any) -> None:
    """Remove the bearer token, and the body if sensitive, from an ApiException; ignores other errors."""
    if not hasattr(error, "body") or not hasattr(error, "headers"):
        return
    if sensitive:
        error.body = _status_without_message(error) if error.body else error.body
        error.data = None  # type: ignore[attr-defined]
    # A proxy may echo the request headers, with the token, in an error page.
    for token in _credential_values(configuration):
        if isinstance(error.body, str) and token in error.body:
            error.body = error.body.replace(token, _HIDDEN)
        if token in str(error.headers):
            error.headers = None


def _status_without_message(error: BaseException) -> str:
    status = {"kind": "Status", "status": "Failure", "reason": parse_status(error).reason, "message": _HIDDEN}
    return json.dumps({**status, "code": http_status(error)})


def _credential_values(configuration: Any) -> list[str]:
    keys = getattr(configuration, "api_key", None)
    values = list(keys.values()) if isinstance(keys, dict) else []
    values += [getattr(configuration, "password", None), getattr(configuration, "access_token", None)]
    # The scheme ("Bearer ...") is not secret.
    credentials = [str(value).rpartition(" ")[2] for value in values if value]
    return [each for each in credentials if each]
