from holdfast.workflow.store.base import (
    NULL_RESULT as NULL_RESULT,
    MemoryStore as MemoryStore,
    ProbeLog as ProbeLog,
    RunRecord as RunRecord,
    StepAttempt as StepAttempt,
    StepLog as StepLog,
    StepRecord as StepRecord,
    Store as Store,
    StoreEventListener as StoreEventListener,
    describe_damage as describe_damage,
    encode_result as encode_result,
    new_run_id as new_run_id,
)
from holdfast.workflow.store.schema import CorruptStoreError as CorruptStoreError
from holdfast.workflow.store.sqlite import SQLiteStore as SQLiteStore
from holdfast.workflow.store.sqlite_file import (
    check_path as check_path,
    damaged_copies as damaged_copies,
)
