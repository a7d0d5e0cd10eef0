from holdfast.gateway.upgrade import (
    datastore as datastore,
    state_machine as state_machine,
)
from holdfast.gateway.upgrade.datastore import (
    UpgradeRecord as UpgradeRecord,
    read_record as read_record,
    remove_leftover_job as remove_leftover_job,
)
from holdfast.gateway.upgrade.upgrade_steps import (
    CheckSpace as CheckSpace,
    CheckUpgrade as CheckUpgrade,
    CommitUpgrade as CommitUpgrade,
    FinishRollback as FinishRollback,
    FinishUpgrade as FinishUpgrade,
    MarkRollback as MarkRollback,
    ParkOldContainer as ParkOldContainer,
    RemoveNewContainer as RemoveNewContainer,
    RestoreOldContainer as RestoreOldContainer,
    RestoreSnapshot as RestoreSnapshot,
    StopOldNode as StopOldNode,
    TakeSnapshot as TakeSnapshot,
    remove_parked_container as remove_parked_container,
)
