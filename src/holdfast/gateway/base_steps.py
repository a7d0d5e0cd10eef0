"""Base classes of the gateway's steps.

The calls of a `ClusterStep` are retried individually, as their outcome allows; a policy around the step
would multiply those attempts, so it has none. Its calls to the container engine go through `engine_call`.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, TypeVar

from holdfast.containers import is_transient
from holdfast.errors import (
    ContainerEngineError,
    ContainerEngineUnreachableError,
    DiskFullError,
    HoldfastError,
    NodeConfigurationError,
    NodeStoppedError,
    WaitFailedError,
    WaitTimeoutError,
)
from holdfast.gateway.cluster import kubernetes_get
from holdfast.gateway.reconnect import reopen_tunnel_on_retry
from holdfast.retry import Policy, exponential
from holdfast.workflow import Step

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.events import RetryScheduled
    from holdfast.gateway.context import GatewayContext
    from holdfast.kube import Objects
    from holdfast.retry import Deadline
    from holdfast.workflow import StepContext

T = TypeVar("T")

# Lines of a log in an error message.
LOG_LINES = 15

_MIN_WAIT_SECONDS = 0.1


def is_retryable_engine_error(error: Exception) -> bool:
    """Whether a call to the engine may succeed next time.

    Errors that quote a node's log are excluded: `is_transient` would judge by the text of that log.
    """
    has_log = isinstance(error, DiskFullError | NodeConfigurationError | NodeStoppedError | WaitTimeoutError)
    return not has_log and is_transient(error)


ENGINE_CALL_POLICY = Policy(attempts=4, backoff=exponential(0.2, cap=5), retry_on=is_retryable_engine_error)
CLUSTER_CALL_POLICY = Policy(attempts=4, backoff=exponential(0.2, cap=10.0))
_RESTART_BACKOFF = exponential(0.2, cap=2.0)


def with_engine_restart_wait(policy: Policy, gateway: GatewayContext) -> Policy:
    """Return the policy with a wait before each retry until the container engine answers again.

    Without effect until the engine has answered in this command: a missing engine fails fast.
    """
    given_up = threading.Event()

    def is_restarting(error: Exception) -> bool:
        is_lost = isinstance(error, ContainerEngineUnreachableError) and not given_up.is_set()
        return is_lost and gateway.has_engine_answered

    def wait_until_engine_answers(_event: RetryScheduled) -> None:
        if not gateway.has_engine_answered or given_up.is_set():
            return
        wait = Policy(
            attempts=None,
            deadline=gateway.settings.timeouts.engine_restart,
            backoff=_RESTART_BACKOFF,
            retry_on=(ContainerEngineError, ContainerEngineUnreachableError),
            stop=gateway.stop,
        )
        try:
            wait.call(gateway.engine.check_answers)
        except HoldfastError:
            given_up.set()  # the next attempt reports the engine's error

    return policy.replace(
        retry_on=lambda error: is_restarting(error) or policy.is_retryable(error),
        on_retry=wait_until_engine_answers,
    )


class GatewayStep(Step):
    """A step on one gateway."""

    policy: Policy | None = ENGINE_CALL_POLICY
    attempts_setting = "engine_call"
    """The setting `attempts.*` of this step, or of each call of a `ClusterStep`."""

    def __init__(self, gateway: GatewayContext) -> None:
        super().__init__()
        self.gateway = gateway
        if self.policy is not None and self.policy.attempts is not None:
            # Set on the instance: another gateway in the same process may have other settings.
            attempts = getattr(gateway.settings.attempts, self.attempts_setting)
            self.policy = with_engine_restart_wait(self.policy.replace(attempts=attempts), gateway)


class ClusterStep(GatewayStep):
    """A step on the objects of the gateway's cluster."""

    policy = None
    attempts_setting = "apply"

    @property
    def has_cluster(self) -> bool:
        """Whether the cluster can be queried; a preview also probes before it exists."""
        return self.gateway.files.kubeconfig.exists()

    def engine_call(self, ctx: StepContext, call: Callable[[], T]) -> T:
        """Call the container engine, with retries."""
        # One attempt in a preview: it reports an engine that does not answer instead of waiting for it.
        attempts = 1 if ctx.is_preview else self.gateway.settings.attempts.engine_call
        policy = with_engine_restart_wait(ENGINE_CALL_POLICY.replace(attempts=attempts), self.gateway)
        return ctx.retry(policy).call(call)

    def objects(self, ctx: StepContext) -> Objects:
        """The objects of the cluster; retries are reported by this step and end on Ctrl-C."""
        from holdfast.kube import Objects

        # All steps share one client and its connection pool. Only the policy differs: it reports retries as
        # events of this step.
        timeout = self.gateway.settings.timeouts.request
        return Objects(self.gateway.api_client, self.call_policy(ctx), timeout=timeout)

    def call_policy(self, ctx: StepContext) -> Policy:
        """The retry policy of one call to the cluster."""
        attempts = 1 if ctx.is_preview else getattr(self.gateway.settings.attempts, self.attempts_setting)
        return ctx.retry(
            CLUSTER_CALL_POLICY.replace(attempts=attempts, on_retry=reopen_tunnel_on_retry(self.gateway))
        )

    def pod_log(self, namespace: str, pod: str) -> str:
        """The last lines of a pod for an error message, preferably of its previous container."""
        path = f"/api/v1/namespaces/{namespace}/pods/{pod}/log?tailLines={LOG_LINES}"
        # For a container that has not restarted, the kubelet answers 400 to `previous`.
        for query in ("&previous=true", ""):
            try:
                log = kubernetes_get(self.gateway, path + query).body
            except (HoldfastError, OSError):
                continue
            if log.strip():
                return indent_log(log.decode(errors="replace"))
        return indent_log("")

    def wait_error(
        self, error: HoldfastError, subject: str, details: str, *, within: str, hint: str
    ) -> HoldfastError:
        """The error for a pod that cannot run, or that did not become ready in time."""
        if isinstance(error, WaitFailedError):
            return WaitFailedError(f"{subject}: cannot run: {details}", hint=hint, cause=error)
        hint = f"Run the same command again to continue waiting. {hint}"
        return WaitTimeoutError(f"{subject}: {within}: {details}", hint=hint, cause=error)

    def describe_hint(self, namespace: str, target: str) -> str:
        """The hint to inspect an object, for example `pod NAME`."""
        path = self.gateway.files.kubeconfig
        return f"Run `kubectl --kubeconfig {path} -n {namespace} describe {target}`."


def progress_reporter(ctx: StepContext) -> Callable[[str, float | None], None]:
    """Return a progress callback that aborts a long effect on Ctrl-C or after the lock was lost."""

    def report(message: str, fraction: float | None) -> None:
        ctx.check_stop()
        ctx.check_lock()
        ctx.progress(message, fraction)

    return report


def indent_log(log: str) -> str:
    """Indent log lines for an error message."""
    return "\n".join(f"    {line}" for line in log.strip().splitlines()) or "    (no output)"


def remaining_seconds(deadline: Deadline) -> float:
    """The rest of a deadline, but never zero: a wait then still checks once."""
    return max(_MIN_WAIT_SECONDS, deadline.remaining())
