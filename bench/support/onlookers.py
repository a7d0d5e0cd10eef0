"""A watch in a separate thread, independent of the client under test, that records when objects change."""

from __future__ import annotations

import http.client
import json
import ssl
import threading
import time

from holdfast.testing.apiserver.processes import LOOPBACK


class Onlooker(threading.Thread):
    """Calls `saw(type, object, moment)` for each event of one kind, in the order of their arrival."""

    def __init__(self, server, path, saw) -> None:
        super().__init__(daemon=True)
        layout, host = server._running_files, server.url.rpartition(":")  # noqa: SLF001 - the files that it wrote
        context = ssl.create_default_context(cafile=str(layout.ca_file))
        context.load_cert_chain(*layout.admin_files)
        self._connection = http.client.HTTPSConnection(LOOPBACK, int(host[2]), timeout=600, context=context)
        self._connection.request("GET", f"{path}?watch=true")
        self._answer, self._saw = self._connection.getresponse(), saw
        self.start()

    def run(self) -> None:
        for line in self._answer:
            moment = time.perf_counter()
            event = json.loads(line)
            self._saw(event["type"], event["object"], moment)
