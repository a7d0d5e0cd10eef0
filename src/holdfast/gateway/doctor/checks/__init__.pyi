from holdfast.gateway.doctor.checks.local_state import (
    CHECKPOINT_SCOPES as CHECKPOINT_SCOPES,
    read_store as read_store,
)
