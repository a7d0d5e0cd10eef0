from holdfast.server.streams.events import encode_event as encode_event
from holdfast.server.streams.files import PATH_PATTERN as PATH_PATTERN
from holdfast.server.streams.handlers import (
    StreamRoutes as StreamRoutes,
    event_stream as event_stream,
    exec_in_sandbox as exec_in_sandbox,
    forward_port as forward_port,
    watch_sandboxes as watch_sandboxes,
)
from holdfast.server.streams.list_events import ObjectStream as ObjectStream
from holdfast.server.streams.spdy import (
    SpdyExecStream as SpdyExecStream,
    UpgradeRejectedError as UpgradeRejectedError,
    open_exec as open_exec,
)
from holdfast.server.streams.websocket_proxy import (
    DisconnectAwareProtocol as DisconnectAwareProtocol,
    enable_keepalive as enable_keepalive,
)
