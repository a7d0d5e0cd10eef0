from holdfast.gateway.pv_migration.find_stranded import (
    MigrationPlan as MigrationPlan,
    is_stranded as is_stranded,
    migration_blocker as migration_blocker,
    pinned_node_names as pinned_node_names,
    plan_migration as plan_migration,
)
from holdfast.gateway.pv_migration.migrate import (
    LOCAL_PATH_DIR as LOCAL_PATH_DIR,
    MigrateVolumes as MigrateVolumes,
    VolumeMigrator as VolumeMigrator,
)
from holdfast.gateway.pv_migration.stale_nodes import (
    Membership as Membership,
    NodeView as NodeView,
    RemoveStaleNodes as RemoveStaleNodes,
    classify_nodes as classify_nodes,
    remove_nodes as remove_nodes,
)
