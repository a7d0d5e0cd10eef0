"""The fault kit: a proxy in front of a real API server that makes it fail, by seed and by script.

`FaultProxy` is the proxy, `rule` says when which fault strikes, `proxy.log` what happened. The same from the
command line: `python -m holdfast.testing.faults --help`.
Not here: fixtures (`holdfast.testing.plugin`), and faults of anything but HTTP.
"""

from holdfast.testing.faults.kinds import KINDS, RETRY_AFTER_FORMS
from holdfast.testing.faults.log import Record, RequestLog
from holdfast.testing.faults.proxy import FaultProxy
from holdfast.testing.faults.rules import Fault, FaultScriptError, Rule, rule
from holdfast.testing.faults.script import Script, load_script, parse_script
from holdfast.testing.faults.upstream import Upstream

__all__ = [
    "KINDS",
    "RETRY_AFTER_FORMS",
    "Fault",
    "FaultProxy",
    "FaultScriptError",
    "Record",
    "RequestLog",
    "Rule",
    "Script",
    "Upstream",
    "load_script",
    "parse_script",
    "rule",
]
