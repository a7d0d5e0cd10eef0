"""Client of the gateway's API (the SDK): create sandboxes, run commands, copy files and forward ports.

`Gateway("dev").sandbox("a")` returns a client for one sandbox. Names are imported on first use: aiohttp is
slow to import.
"""

from holdfast import lazy_exports

__all__, __getattr__, __dir__ = lazy_exports.attach(__name__, __file__)
