"""Every error that holdfast raises on purpose, drawn as one tree.

    HoldfastError                       has a message, a code, a hint, a cause and an exit code
    ├── TemporaryError                  exit 1: the same command, run again, goes on from here
    │   ├── DeadlineError               the time given to a call, or to a wait, is over (a TimeoutError too)
    │   ├── OutcomeUnknownError         a write may or may not have happened, and nobody could be asked
    │   ├── EngineCallError             the container engine answered a call with an error
    │   ├── HostUnreachableError        the ssh connection to a host could not be made, or was cut
    │   │   └── ConnectionCutError      it was cut while a command was at work, and its lock went with it
    │   ├── NodeStoppedError            the node's container ended while it was waited for
    │   ├── WaitTimeoutError            something did not become ready in its time
    │   └── BuildFailedError            a stage of an image build failed
    ├── PermanentError                  exit 3: a person has to change something first; the hint says what
    │   ├── EngineUnreachableError      no container engine answers
    │   ├── EnginePermissionError       the engine's socket may not be used by this user
    │   ├── HostUnusableError           ssh to a host needs a person: unknown host or key, rejected key
    │   ├── EngineUnfitError            the engine is too old or does not allow what a node needs
    │   ├── ImageMissingError           the image is not there and cannot be had
    │   ├── ImageUnfitError             the image is there but is no node image, or for another machine
    │   ├── NodeRefusedError            the node does not start with the settings it was given
    │   ├── UpgradeRolledBackError      the new version did not become healthy; the old one runs again
    │   ├── PortTakenError              something else listens on the asked port
    │   ├── ForeignObjectError          a container, network or volume of our name that is not ours
    │   ├── DiskFullError               no space left where something has to be written
    │   ├── ToolMissingError            a program that an image build needs is not installed
    │   ├── DamagedFileError            one of holdfast's own files cannot be read
    │   ├── ObjectConflictError         an object of that name is there, and it is not ours or not alike
    │   ├── WaitFailedError             what was waited for can no longer come true
    │   ├── ClusterRefusedError         the cluster understood the request and said no
    │   ├── SandboxMissingError         there is no sandbox of that name
    │   └── UsageError                  exit 2: the words of the command or the arguments of a call are off
    │       ├── ArgumentError           one argument cannot be meant like that: it is named (a ValueError too)
    │       │   └── ArgumentKindError   one argument is of the wrong kind (a TypeError too)
    │       ├── IllegalNameError        not a name for a gateway
    │       ├── UnknownGatewayError     no gateway of that name
    │       └── BadSettingError         a setting has an unknown key or a value that cannot be
    ├── LockedError                     exit 4: another run holds the gateway
    └── CancelledError                  exit 130: Ctrl-C

    of the engine: StepError, UnknownStateError, LockLostError (temporary); ResultError, SecretLeakError,
    StoreError with StoreFullError and StoreVersionError (permanent); WorkflowError (usage)

Errors of third-party libraries are translated on the floor that meets them; nobody above sees urllib3.
Not here: how an error is printed (`cli`), and what is retried (each floor says that of its own boundary).
"""

from __future__ import annotations

from typing import ClassVar


class HoldfastError(Exception):
    """Base of the tree: what went wrong, why, and what to do next."""

    code: ClassVar[str] = "error"
    exit_code: ClassVar[int] = 1
    default_hint: ClassVar[str] = ""

    def __init__(self, message: str, *, hint: str | None = None, cause: BaseException | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = self.default_hint if hint is None else hint
        if cause is not None:
            self.__cause__ = cause

    @property
    def cause(self) -> BaseException | None:
        """The error underneath, if one was translated."""
        return self.__cause__


class TemporaryError(HoldfastError):
    """Something outside failed in a way that may pass."""

    code = "temporary"
    default_hint = "Run the same command again; it goes on from here."


class PermanentError(HoldfastError):
    """Trying again cannot help until a person changes something."""

    code = "permanent"
    exit_code = 3


class UsageError(PermanentError):
    """The words of a command, or the arguments of a call, cannot be meant like that."""

    code = "usage"
    exit_code = 2


class LockedError(HoldfastError):
    """Another run is at work on the same thing."""

    code = "locked"
    exit_code = 4
    default_hint = "Wait until the other run has ended, then run the same command again."


class CancelledError(HoldfastError):
    """The user interrupted the command; what was finished stays finished."""

    code = "interrupted"
    exit_code = 130
    default_hint = "Nothing was undone. Run the same command again to go on."


class EngineCallError(TemporaryError):
    """The container engine answered a call with an error."""

    code = "engine-call"


class HostUnreachableError(TemporaryError):
    """The ssh connection to a host could not be made, or was cut."""

    code = "host-unreachable"


class ConnectionCutError(HostUnreachableError):
    """The connection was cut in the middle of a run, whose lock over there went with it."""

    code = "connection-cut"


class NodeStoppedError(TemporaryError):
    """The node's container ended while it was waited for."""

    code = "node-stopped"


class WaitTimeoutError(TemporaryError):
    """Something did not become ready in its time."""

    code = "wait-timeout"


class BuildFailedError(TemporaryError):
    """A stage of an image build failed; finished stages are kept."""

    code = "build-failed"


class EngineUnreachableError(PermanentError):
    """No container engine answers."""

    code = "engine-unreachable"


class EnginePermissionError(PermanentError):
    """The engine's socket may not be used by this user."""

    code = "engine-permission"


class HostUnusableError(PermanentError):
    """A host cannot be used by ssh until a person changes something."""

    code = "host-unusable"


class EngineUnfitError(PermanentError):
    """The engine is too old, or does not allow what a node needs."""

    code = "engine-unfit"


class ImageMissingError(PermanentError):
    """The image is not on the engine and cannot be had."""

    code = "image-missing"


class ImageUnfitError(PermanentError):
    """The image is there, but it is no node image or is for another machine."""

    code = "image-unfit"


class NodeRefusedError(PermanentError):
    """The node does not start with the settings it was given."""

    code = "node-refused"


class UpgradeRolledBackError(PermanentError):
    """The new version did not become healthy, and the gateway runs the old one again."""

    code = "upgrade-rolled-back"


class PortTakenError(PermanentError):
    """Something else listens on the asked port."""

    code = "port-taken"


class ForeignObjectError(PermanentError):
    """A container, network or volume has our name but was not made by holdfast."""

    code = "foreign-object"


class DiskFullError(PermanentError):
    """There is no space left where something has to be written."""

    code = "disk-full"
    default_hint = "Free some space, then run the same command again; it goes on from here."


class ToolMissingError(PermanentError):
    """A program that an image build needs is not installed."""

    code = "tool-missing"


class DamagedFileError(PermanentError):
    """One of holdfast's own files cannot be read."""

    code = "damaged-file"


class IllegalNameError(UsageError):
    """That cannot be the name of a gateway."""

    code = "illegal-name"


class UnknownGatewayError(UsageError):
    """There is no gateway of that name."""

    code = "unknown-gateway"


class BadSettingError(UsageError):
    """A setting has an unknown key, or a value that cannot be."""

    code = "bad-setting"


# Calls that are made again (`retry`) -----------------------------------------------------------------------


class ArgumentError(UsageError, ValueError):
    """An argument has a value that cannot be meant; `argument` is its name."""

    code = "argument"

    def __init__(
        self, argument: str, message: str, *, hint: str | None = None, cause: BaseException | None = None
    ) -> None:
        super().__init__(f"{argument}: {message}", hint=hint, cause=cause)
        self.argument = argument


class ArgumentKindError(ArgumentError, TypeError):
    """An argument is of a kind that cannot be used there."""

    code = "argument-kind"


class DeadlineError(TemporaryError, TimeoutError):
    """The time that was given is over."""

    code = "deadline"


# The cluster's API (`kube`) --------------------------------------------------------------------------------


class OutcomeUnknownError(TemporaryError):
    """A write was sent, its answer was lost, and the server could not be asked what became of it."""

    code = "outcome-unknown"
    default_hint = "It may have happened. Run the same command again: it looks first, then goes on."


class ObjectConflictError(PermanentError):
    """An object of that name exists; it belongs to someone else or differs from what was sent."""

    code = "object-conflict"
    default_hint = "Choose another name, or remove the object that is in the way."


class WaitFailedError(PermanentError):
    """The object has ended in a state from which the awaited one cannot be reached."""

    code = "wait-failed"


class ClusterRefusedError(PermanentError):
    """The API server refused the request for good: wrong, forbidden or not there."""

    code = "cluster-refused"


# Sandboxes -------------------------------------------------------------------------------------------------


class SandboxMissingError(PermanentError):
    """There is no sandbox of that name on the gateway."""

    code = "sandbox-missing"
    default_hint = "`holdfast sandbox list` shows those that are there."


# --- engine: workflows, stores, locks ---


class StepError(TemporaryError):
    """A step raised something that is not of this tree; the error underneath says what."""

    code = "step.failed"


class UnknownStateError(TemporaryError):
    """Nobody could say whether a step's effect is there, so nothing was done."""

    code = "step.unknown"
    default_hint = "Nothing was changed. Run the same command again when the other side answers."


class LockLostError(TemporaryError):
    """The lock of this run is no longer ours, so nothing more was done."""

    code = "lock.lost"


class WorkflowError(UsageError):
    """A workflow, or a step of it, cannot be meant like that."""

    code = "workflow.invalid"


class ResultError(PermanentError):
    """What a step returned cannot be kept, or is missing where another step reads it."""

    code = "step.result"


class SecretLeakError(PermanentError):
    """A step handed a secret to the store."""

    code = "store.secret"
    default_hint = "Return a reference (a name, a path) instead, and read the secret again in restore()."


class StoreError(PermanentError):
    """The store cannot be used as it is."""

    code = "store.unusable"


class StoreFullError(StoreError):
    """The disk would not take another record; nothing that was recorded is lost."""

    code = "store.full"
    default_hint = "Free some space there and run the same command again; it goes on from here."


class StoreVersionError(StoreError):
    """The store was written by a newer holdfast and is left alone."""

    code = "store.newer"
    default_hint = "Use the holdfast version that wrote it, or a newer one."
