from holdfast.client.archive import content_size as content_size
from holdfast.client.background import (
    AsyncBackgroundCommand as AsyncBackgroundCommand,
    Signal as Signal,
    signal_name as signal_name,
)
from holdfast.client.blocking import ExecSession as ExecSession
from holdfast.client.blocking_handles import BackgroundCommand as BackgroundCommand, Files as Files
from holdfast.client.bulk import BulkOutcome as BulkOutcome, BulkResult as BulkResult
from holdfast.client.command_records import (
    CommandState as CommandState,
    CommandView as CommandView,
    validate_command_id as validate_command_id,
)
from holdfast.client.copy import CopyResult as CopyResult
from holdfast.client.errors import name_gateway as name_gateway
from holdfast.client.exec import (
    AsyncExecSession as AsyncExecSession,
    ExecOutput as ExecOutput,
    ExecResult as ExecResult,
    end_after as end_after,
)
from holdfast.client.file_entries import FileEntry as FileEntry, FileType as FileType
from holdfast.client.files import AsyncFiles as AsyncFiles, RemotePath as RemotePath
from holdfast.client.paths import remote_path as remote_path
from holdfast.client.pools import AsyncPools as AsyncPools, AsyncTemplates as AsyncTemplates
from holdfast.client.port_forward import PortForward as PortForward
from holdfast.client.sandbox import AsyncSandbox as AsyncSandbox
from holdfast.client.sandboxes import AsyncSandboxes as AsyncSandboxes
from holdfast.client.secrets import AsyncSecrets as AsyncSecrets, build_secret_request as build_secret_request
from holdfast.client.sync import Sandbox as Sandbox, Sandboxes as Sandboxes, Secrets as Secrets
from holdfast.client.sync_pools import Pools as Pools, Templates as Templates
from holdfast.client.transport import GatewayEndpoint as GatewayEndpoint, Transport as Transport
from holdfast.client.watch import summarize as summarize
