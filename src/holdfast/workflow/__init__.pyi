from holdfast.workflow.function_step import result_of as result_of
from holdfast.workflow.journal import (
    delete_old_runs as delete_old_runs,
    list_runs as list_runs,
    open_exclusive as open_exclusive,
    with_recorded_steps as with_recorded_steps,
)
from holdfast.workflow.lock import (
    FileLock as FileLock,
    Lock as Lock,
    LockHolder as LockHolder,
    NoLock as NoLock,
    locked_error as locked_error,
    process_start_ticks as process_start_ticks,
)
from holdfast.workflow.preview import Plan as Plan, PlannedStep as PlannedStep
from holdfast.workflow.runner import RunResult as RunResult
from holdfast.workflow.secrets import (
    MIN_REDACTED_LENGTH as MIN_REDACTED_LENGTH,
    Secret as Secret,
    SecretRedactor as SecretRedactor,
    encoded_forms as encoded_forms,
)
from holdfast.workflow.step import (
    JSON as JSON,
    ProbeResult as ProbeResult,
    Step as Step,
    StepContext as StepContext,
    absent as absent,
    done as done,
    partial as partial,
    unknown as unknown,
)
from holdfast.workflow.store.base import (
    MemoryStore as MemoryStore,
    ProbeLog as ProbeLog,
    RunRecord as RunRecord,
    StepLog as StepLog,
    StepRecord as StepRecord,
    Store as Store,
)
from holdfast.workflow.store.sqlite import SQLiteStore as SQLiteStore
from holdfast.workflow.workflow import Workflow as Workflow
