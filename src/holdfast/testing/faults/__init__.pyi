from holdfast.testing.faults.proxy import FaultProxy as FaultProxy
from holdfast.testing.faults.request_log import RequestLog as RequestLog, RequestRecord as RequestRecord
from holdfast.testing.faults.rules import (
    FAULT_KINDS as FAULT_KINDS,
    RETRY_AFTER_FORMS as RETRY_AFTER_FORMS,
    Fault as Fault,
    FaultScript as FaultScript,
    FaultScriptError as FaultScriptError,
    Rule as Rule,
    load_script as load_script,
    parse_script as parse_script,
    rule as rule,
)
from holdfast.testing.faults.upstream import Upstream as Upstream
