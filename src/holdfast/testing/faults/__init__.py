"""Fault injection: a proxy in front of a real API server that makes it fail, by seed and script.

`FaultProxy` is the proxy, `rule` selects requests and faults, `proxy.log` records what happened. From the
command line: `python -m holdfast.testing.faults --help`. Fixtures: `holdfast.testing.plugin`.
"""

from holdfast import lazy_exports

__all__, __getattr__, __dir__ = lazy_exports.attach(__name__, __file__)
