from holdfast.gateway.doctor.checks import (
    cluster as cluster,
    engine_host as engine_host,
    gateway_container as gateway_container,
    local_state as local_state,
)
from holdfast.gateway.doctor.checks.local_state import read_store as read_store
