"""Every error that holdfast raises on purpose, as one tree. Codes are a contract: `--json` prints them.

HoldfastError                   message, code, hint, cause and exit code
├── TemporaryError              exit 1: run the same command again to continue
├── PermanentError              exit 3: manual action required; the hint says what
│   └── UsageError              exit 2: invalid command line, argument or setting
├── LockedError                 exit 4: another run holds the gateway
└── OperationCancelledError     exit 130: interrupted by the user
"""

from __future__ import annotations

from holdfast.error_base import (
    ArgumentTypeError as ArgumentTypeError,
    DeadlineExceededError as DeadlineExceededError,
    HoldfastError as HoldfastError,
    InvalidArgumentError as InvalidArgumentError,
    LockedError as LockedError,
    OperationCancelledError as OperationCancelledError,
    PermanentError as PermanentError,
    TemporaryError as TemporaryError,
    UsageError as UsageError,
)


class ContainerEngineError(TemporaryError):
    """The container engine answered a call with an error."""

    code = "engine-call"


class HostUnreachableError(TemporaryError):
    """The ssh connection to a host failed or was lost."""

    code = "host-unreachable"


class ConnectionLostError(HostUnreachableError):
    """The ssh connection was lost during a run, and the lock on the host with it."""

    code = "connection-cut"


class NodeStoppedError(TemporaryError):
    """The node's container exited while a step waited for the node."""

    code = "node-stopped"


class WaitTimeoutError(TemporaryError):
    """A resource did not become ready in time."""

    code = "wait-timeout"


class NotHealthyYetError(TemporaryError):
    """A health check of the gateway failed; the step checks again."""

    code = "not-healthy-yet"


class ImageBuildError(TemporaryError):
    """A stage of an image build failed. The cache keeps finished stages."""

    code = "build-failed"


class ContainerEngineUnreachableError(PermanentError):
    """No container engine answers."""

    code = "engine-unreachable"


class ContainerEnginePermissionError(PermanentError):
    """The user may not use the socket of the container engine."""

    code = "engine-permission"


class HostAccessError(PermanentError):
    """ssh refuses the host: unknown host, changed host key or rejected user key."""

    code = "host-unusable"


class ContainerEngineUnsupportedError(PermanentError):
    """The container engine is too old, or does not allow what a node needs."""

    code = "engine-unfit"


class ImageNotFoundError(PermanentError):
    """The container engine does not have the image and cannot pull it."""

    code = "image-missing"


class ImageIncompatibleError(PermanentError):
    """The image is not a node image, or is built for another architecture."""

    code = "image-unfit"


class NodeConfigurationError(PermanentError):
    """The node rejects its settings and does not start."""

    code = "node-refused"


class UpgradeRolledBackError(PermanentError):
    """The new version did not become healthy; the gateway runs the old version again."""

    code = "upgrade-rolled-back"


class PortInUseError(PermanentError):
    """Another program listens on the requested port."""

    code = "port-taken"


class ObjectOwnershipError(PermanentError):
    """A container, network or volume has the name of the gateway but not its label."""

    code = "foreign-object"


class DiskFullError(PermanentError):
    """A disk that holdfast writes to is full."""

    code = "disk-full"
    default_hint = "Free disk space, then run the same command again to continue."


class ToolNotFoundError(PermanentError):
    """A program that a command needs is not installed."""

    code = "tool-missing"


class CorruptFileError(PermanentError):
    """A file of holdfast is damaged and cannot be read."""

    code = "damaged-file"


class InvalidGatewayNameError(UsageError):
    """Not a valid gateway name."""

    code = "illegal-name"


class GatewayNotFoundError(UsageError):
    """No gateway has that name."""

    code = "unknown-gateway"


class InvalidSettingError(UsageError):
    """A settings key is unknown, or its value is invalid."""

    code = "bad-setting"


class ApiUnreachableError(TemporaryError):
    """The API server does not answer, or answers that it is not ready."""

    code = "api-unreachable"


class ApiRefusedError(PermanentError):
    """The API server rejects the client certificate, or its own certificate is not valid."""

    code = "api-refused"


class ApiRequestRejectedError(PermanentError):
    """The API server rejected the request: invalid, forbidden or not found."""

    code = "cluster-refused"


class CommandFailedError(PermanentError):
    """A command in a sandbox, run with `check=True`, failed with this exit code and output."""

    code = "command-failed"
    default_hint = "Correct the command, or run it without `check=True`."

    def __init__(self, message: str, *, exit_code: int = 3, stdout: bytes = b"", stderr: bytes = b"") -> None:
        super().__init__(message)
        self.exit_code, self.stdout, self.stderr = exit_code, stdout, stderr


class PathNotFoundError(ApiRequestRejectedError, FileNotFoundError):
    """A path does not exist in the sandbox."""

    code = "path-missing"


class PathPermissionError(ApiRequestRejectedError, PermissionError):
    """The user of the sandbox may not access a path."""

    code = "path-denied"


class PathIsDirectoryError(ApiRequestRejectedError, IsADirectoryError):
    """A path in the sandbox is a directory and not a file."""

    code = "path-is-directory"


class PathNotDirectoryError(ApiRequestRejectedError, NotADirectoryError):
    """A path in the sandbox is not a directory."""

    code = "path-not-directory"


class ProcessNotFoundError(PermanentError):
    """The sandbox has no background command with that id."""

    code = "process-missing"


class CommandLostError(PermanentError):
    """A background command ended with its pod, so that it has no exit code."""

    code = "command-lost"
    default_hint = "Check what the command has done, then start it again."


class OutcomeUnknownError(TemporaryError):
    """A write was sent, the response was lost, and reading back failed too."""

    code = "outcome-unknown"
    default_hint = "Run the same command again: it checks whether the write happened before it acts."


class ObjectConflictError(PermanentError):
    """An object of that name exists; it has another owner or differs from the request."""

    code = "object-conflict"
    default_hint = "Choose another name, or delete the existing object."


class WaitFailedError(PermanentError):
    """The object is in a final state and can no longer reach the awaited one."""

    code = "wait-failed"


class WatchStreamError(TemporaryError):
    """The API server ended a watch with an ERROR event."""

    code = "watch-stream"

    def __init__(self, status: int, reason: str, retry_after: float | None) -> None:
        super().__init__(f"watch: ended with {status} {reason}".rstrip())
        self.status = status
        self.headers = {"Retry-After": f"{retry_after:.3f}"} if retry_after else {}


class WatchDroppedError(TemporaryError):
    """The API server closed a watch immediately after it started."""

    code = "watch-dropped"


class UnreadableResponseError(TemporaryError):
    """A successful response does not contain a Kubernetes object."""

    code = "unreadable-answer"


class ResponseTooLargeError(TemporaryError):
    """A response exceeds the size limit; the client stopped reading it."""

    code = "answer-too-large"


class RedactedError(HoldfastError):
    """Replaces an error whose message quotes a Secret object."""

    code = "withheld"


class GatewayUnreachableError(ApiUnreachableError):
    """The request did not reach the gateway's API, so it had no effect."""

    code = "gateway-unreachable"


class ResponseLostError(ApiUnreachableError):
    """The request may have had its effect, but the response was lost."""

    code = "answer-lost"


class GatewayUnavailableError(TemporaryError):
    """The gateway's API cannot serve the request now; `retry_after` is its Retry-After."""

    code = "gateway-trouble"
    retry_after: float | None = None


class SandboxNotFoundError(PermanentError):
    """No sandbox has that name on the gateway."""

    code = "sandbox-missing"
    default_hint = "Run `holdfast sandbox list` to list all sandboxes."


class SecretNotFoundError(PermanentError):
    """No secret has that name on the gateway."""

    code = "secret-missing"
    default_hint = "Run `holdfast secret list` to list all secrets."


class SandboxMaybeDeletedError(SandboxNotFoundError):
    """The sandbox does not exist; an earlier attempt with a lost response may have deleted it."""


class TemplateNotFoundError(PermanentError):
    """No template has that name on the gateway."""

    code = "template-missing"
    default_hint = "Run `holdfast template list` to list all templates."
    maybe_deleted = False  # by an earlier attempt whose response was lost


class PoolNotFoundError(PermanentError):
    """No warm pool has that name on the gateway."""

    code = "pool-missing"
    default_hint = "Run `holdfast pool list` to list all pools."
    maybe_deleted = False


class StepError(TemporaryError):
    """A step raised an error that is not a HoldfastError; see the cause."""

    code = "step-failed"


class StepStateUnknownError(TemporaryError):
    """A probe could not determine whether a step's effect exists, so nothing was done."""

    code = "step-unknown"
    default_hint = "Run the same command again when the probed service is reachable. Nothing was changed."


class StepResultError(PermanentError):
    """A step returned a result that the store cannot keep, or a step reads a missing result."""

    code = "step-result"


class WorkflowError(UsageError):
    """A workflow or one of its steps is defined incorrectly."""

    code = "workflow-invalid"


class LockLostError(TemporaryError):
    """The run lost its lock, so it stopped."""

    code = "lock-lost"


class StoreError(PermanentError):
    """The store cannot be used."""

    code = "store-unusable"


class StoreFullError(StoreError):
    """The disk of the store is full. Existing records are intact."""

    code = "store-full"
    default_hint = "Free space on that disk, then run the same command again to continue."


class StoreVersionError(StoreError):
    """A newer holdfast wrote the store; this version does not touch it."""

    code = "store-newer"
    default_hint = "Use the version of holdfast that wrote it, or a newer one."


class SecretLeakError(PermanentError):
    """A step passed a secret value to the store."""

    code = "store-secret"
    default_hint = "Return a reference (a name or a path) instead, and read the secret in restore()."
