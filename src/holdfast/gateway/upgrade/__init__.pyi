from holdfast.gateway.upgrade import (
    datastore as datastore,
    state_machine as state_machine,
)
from holdfast.gateway.upgrade.datastore import (
    UpgradeRecord as UpgradeRecord,
    container_kubernetes_version as container_kubernetes_version,
    read_record as read_record,
    remove_leftover_job as remove_leftover_job,
    target_kubernetes_version as target_kubernetes_version,
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
