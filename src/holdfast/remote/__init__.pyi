from holdfast.remote.container_engine import (
    SshHost as SshHost,
    connect as connect,
    connect_over_ssh as connect_over_ssh,
    copy_image as copy_image,
)
from holdfast.remote.control_master import (
    DEFAULT_SSH_TIMEOUTS as DEFAULT_SSH_TIMEOUTS,
    ControlMaster as ControlMaster,
    SshTimeouts as SshTimeouts,
)
from holdfast.remote.lock import (
    HEARTBEAT_TIMEOUT_SECONDS as HEARTBEAT_TIMEOUT_SECONDS,
    RemoteLock as RemoteLock,
)
from holdfast.remote.ssh_target import (
    SSH_SCHEME as SSH_SCHEME,
    SshTarget as SshTarget,
    parse_target as parse_target,
)
