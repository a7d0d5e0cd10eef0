"""Every error that holdfast raises on purpose, as one tree. Codes are a contract: `--json` prints them.

HoldfastError                   message, code, hint, cause and exit code
├── TemporaryError              exit 1: run the same command again to continue
├── PermanentError              exit 3: manual action required; the hint says what
│   └── UsageError              exit 2: invalid command line, argument or setting
├── LockedError                 exit 4: another run holds the gateway
└── OperationCancelledError     exit 130: interrupted by the user
"""

from __future__ import annotations

from typing import ClassVar


class HoldfastError(Exception):
    """Base class of all errors; each layer translates the errors of its third-party libraries.

    Args:
        message: what failed, as `<object>: <problem>`.
        hint: the exact next command; `default_hint` if omitted.
        cause: the error that this one translates.
    """

    code: ClassVar[str] = "error"
    """stable identifier; subclasses set it as a class argument"""
    exit_code: int = 1
    default_hint: ClassVar[str] = ""

    def __init__(self, message: str, *, hint: str | None = None, cause: BaseException | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = self.default_hint if hint is None else hint
        if cause is not None:
            self.__cause__ = cause

    def __init_subclass__(cls, *, code: str = "", **options: object) -> None:
        super().__init_subclass__(**options)
        if code:
            cls.code = code

    @property
    def cause(self) -> BaseException | None:
        return self.__cause__


class TemporaryError(HoldfastError, code="temporary"):
    """A failure outside holdfast that may go away."""

    default_hint = "Run the same command again to continue."


class PermanentError(HoldfastError, code="permanent"):
    """A retry fails again until the user changes something; the hint says what."""

    exit_code = 3


class UsageError(PermanentError, code="usage"):
    """Invalid command line, or invalid arguments of a call."""

    exit_code = 2


class LockedError(HoldfastError, code="locked"):
    """Another run holds the lock of the same gateway."""

    exit_code = 4
    default_hint = "Wait until the other run ends, then run the same command again."


class OperationCancelledError(HoldfastError, code="interrupted"):
    """The user interrupted the command. Finished steps stay finished."""

    exit_code = 130
    default_hint = "Run the same command again to continue. Nothing was undone."


class InvalidArgumentError(UsageError, ValueError, code="argument"):
    """An argument has an invalid value; `argument` is its name."""

    def __init__(
        self, argument: str, message: str, *, hint: str | None = None, cause: BaseException | None = None
    ) -> None:
        super().__init__(f"{argument}: {message}", hint=hint, cause=cause)
        self.argument = argument


class ArgumentTypeError(InvalidArgumentError, TypeError, code="argument-kind"):
    """An argument has the wrong type."""


class DeadlineExceededError(TemporaryError, TimeoutError, code="deadline"):
    """The deadline of a call or a wait has passed."""


class ContainerEngineError(TemporaryError, code="engine-call"):
    """The container engine answered a call with an error."""


class HostUnreachableError(TemporaryError, code="host-unreachable"):
    """The ssh connection to a host failed or was lost."""


class ConnectionLostError(HostUnreachableError, code="connection-cut"):
    """The ssh connection was lost during a run, and the lock on the host with it."""


class NodeStoppedError(TemporaryError, code="node-stopped"):
    """The node's container exited while a step waited for the node."""


class WaitTimeoutError(TemporaryError, code="wait-timeout"):
    """A resource did not become ready in time."""


class NotHealthyYetError(TemporaryError, code="not-healthy-yet"):
    """A health check of the gateway failed; the step checks again."""


class ImageBuildError(TemporaryError, code="build-failed"):
    """A stage of an image build failed. The cache keeps finished stages."""


class ContainerEngineUnreachableError(PermanentError, code="engine-unreachable"):
    """No container engine answers."""


class ContainerEnginePermissionError(PermanentError, code="engine-permission"):
    """The user may not use the socket of the container engine."""


class HostAccessError(PermanentError, code="host-unusable"):
    """ssh refuses the host: unknown host, changed host key or rejected user key."""


class ContainerEngineUnsupportedError(PermanentError, code="engine-unfit"):
    """The container engine is too old, or does not allow what a node needs."""


class ImageNotFoundError(PermanentError, code="image-missing"):
    """The container engine does not have the image and cannot pull it."""


class ImageIncompatibleError(PermanentError, code="image-unfit"):
    """The image is not a node image, or is built for another architecture."""


class NodeConfigurationError(PermanentError, code="node-refused"):
    """The node rejects its settings and does not start."""


class UpgradeRolledBackError(PermanentError, code="upgrade-rolled-back"):
    """The new version did not become healthy; the gateway runs the old version again."""


class PortInUseError(PermanentError, code="port-taken"):
    """Another program listens on the requested port."""


class ObjectOwnershipError(PermanentError, code="foreign-object"):
    """A container, network or volume has the name of the gateway but not its label."""


class DiskFullError(PermanentError, code="disk-full"):
    """A disk that holdfast writes to is full."""

    default_hint = "Free disk space, then run the same command again to continue."


class ToolNotFoundError(PermanentError, code="tool-missing"):
    """A program that a command needs is not installed."""


class CorruptFileError(PermanentError, code="damaged-file"):
    """A file of holdfast is damaged and cannot be read."""


class InvalidGatewayNameError(UsageError, code="illegal-name"):
    """Not a valid gateway name."""


class GatewayNotFoundError(UsageError, code="unknown-gateway"):
    """No gateway has that name."""


class InvalidSettingError(UsageError, code="bad-setting"):
    """A settings key is unknown, or its value is invalid."""


class ApiUnreachableError(TemporaryError, code="api-unreachable"):
    """The API server does not answer, or answers that it is not ready."""


class ApiRefusedError(PermanentError, code="api-refused"):
    """The API server rejects the client certificate, or its own certificate is not valid."""


class ApiRequestRejectedError(PermanentError, code="cluster-refused"):
    """The API server rejected the request: invalid, forbidden or not found."""


class CommandFailedError(PermanentError, code="command-failed"):
    """A command in a sandbox, run with `check=True`, failed with this exit code and output."""

    default_hint = "Correct the command, or run it without `check=True`."

    def __init__(self, message: str, *, exit_code: int = 3, stdout: bytes = b"", stderr: bytes = b"") -> None:
        super().__init__(message)
        self.exit_code, self.stdout, self.stderr = exit_code, stdout, stderr


class PathNotFoundError(ApiRequestRejectedError, FileNotFoundError, code="path-missing"):
    """A path does not exist in the sandbox."""


class PathPermissionError(ApiRequestRejectedError, PermissionError, code="path-denied"):
    """The user of the sandbox may not access a path."""


class PathIsDirectoryError(ApiRequestRejectedError, IsADirectoryError, code="path-is-directory"):
    """A path in the sandbox is a directory and not a file."""


class PathNotDirectoryError(ApiRequestRejectedError, NotADirectoryError, code="path-not-directory"):
    """A path in the sandbox is not a directory."""


class ProcessNotFoundError(PermanentError, code="process-missing"):
    """The sandbox has no background command with that id."""


class CommandLostError(PermanentError, code="command-lost"):
    """A background command ended with its pod, so that it has no exit code."""

    default_hint = "Check what the command has done, then start it again."


class OutcomeUnknownError(TemporaryError, code="outcome-unknown"):
    """A write was sent, the response was lost, and reading back failed too."""

    default_hint = "Run the same command again: it checks whether the write happened before it acts."


class ObjectConflictError(PermanentError, code="object-conflict"):
    """An object of that name exists; it has another owner or differs from the request."""

    default_hint = "Choose another name, or delete the existing object."


class WaitFailedError(PermanentError, code="wait-failed"):
    """The object is in a final state and can no longer reach the awaited one."""


class WatchStreamError(TemporaryError, code="watch-stream"):
    """The API server ended a watch with an ERROR event."""

    def __init__(self, status: int, reason: str, retry_after: float | None) -> None:
        super().__init__(f"watch: ended with {status} {reason}".rstrip())
        self.status = status
        self.headers = {"Retry-After": f"{retry_after:.3f}"} if retry_after else {}


class WatchDroppedError(TemporaryError, code="watch-dropped"):
    """The API server closed a watch immediately after it started."""


class UnreadableResponseError(TemporaryError, code="unreadable-answer"):
    """A successful response does not contain a Kubernetes object."""


class ResponseTooLargeError(TemporaryError, code="answer-too-large"):
    """A response exceeds the size limit; the client stopped reading it."""


class RedactedError(HoldfastError, code="withheld"):
    """Replaces an error whose message quotes a Secret object."""


class GatewayUnreachableError(ApiUnreachableError, code="gateway-unreachable"):
    """The request did not reach the gateway's API, so it had no effect."""


class ResponseLostError(ApiUnreachableError, code="answer-lost"):
    """The request may have had its effect, but the response was lost."""


class GatewayUnavailableError(TemporaryError, code="gateway-trouble"):
    """The gateway's API cannot serve the request now; `retry_after` is its Retry-After."""

    retry_after: float | None = None


class SandboxNotFoundError(PermanentError, code="sandbox-missing"):
    """No sandbox has that name on the gateway."""

    default_hint = "Run `holdfast sandbox list` to list all sandboxes."


class SecretNotFoundError(PermanentError, code="secret-missing"):
    """No secret has that name on the gateway."""

    default_hint = "Run `holdfast secret list` to list all secrets."


class SandboxMaybeDeletedError(SandboxNotFoundError):
    """The sandbox does not exist; an earlier attempt with a lost response may have deleted it."""


class TemplateNotFoundError(PermanentError, code="template-missing"):
    """No template has that name on the gateway."""

    default_hint = "Run `holdfast template list` to list all templates."
    maybe_deleted = False  # by an earlier attempt whose response was lost


class PoolNotFoundError(PermanentError, code="pool-missing"):
    """No warm pool has that name on the gateway."""

    default_hint = "Run `holdfast pool list` to list all pools."
    maybe_deleted = False


class StepError(TemporaryError, code="step-failed"):
    """A step raised an error that is not a HoldfastError; see the cause."""


class StepStateUnknownError(TemporaryError, code="step-unknown"):
    """A probe could not determine whether a step's effect exists, so nothing was done."""

    default_hint = "Run the same command again when the probed service is reachable. Nothing was changed."


class StepResultError(PermanentError, code="step-result"):
    """A step returned a result that the store cannot keep, or a step reads a missing result."""


class WorkflowError(UsageError, code="workflow-invalid"):
    """A workflow or one of its steps is defined incorrectly."""


class LockLostError(TemporaryError, code="lock-lost"):
    """The run lost its lock, so it stopped."""


class StoreError(PermanentError, code="store-unusable"):
    """The store cannot be used."""


class StoreFullError(StoreError, code="store-full"):
    """The disk of the store is full. Existing records are intact."""

    default_hint = "Free space on that disk, then run the same command again to continue."


class StoreVersionError(StoreError, code="store-newer"):
    """A newer holdfast wrote the store; this version does not touch it."""

    default_hint = "Use the version of holdfast that wrote it, or a newer one."


class SecretLeakError(PermanentError, code="store-secret"):
    """A step passed a secret value to the store."""

    default_hint = "Return a reference (a name or a path) instead, and read the secret in restore()."
