from holdfast.server.access_middleware import ClientLimits as ClientLimits
from holdfast.server.main import ServerOptions as ServerOptions, serve as serve
