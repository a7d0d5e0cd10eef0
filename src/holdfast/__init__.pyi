from holdfast.client import Sandbox as Sandbox
from holdfast.gateway.gateway import Gateway as Gateway
from holdfast.kube import resilient as resilient
from holdfast.retry import Policy as Policy, retry as retry
from holdfast.workflow import Workflow as Workflow

__version__: str
