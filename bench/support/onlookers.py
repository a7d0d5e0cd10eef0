"""Who sees when what happened: a watch in a thread of its own that owes nothing to the client under test."""

from __future__ import annotations

import http.client
import json
import ssl
import threading
import time

from holdfast.testing.kube_components import LOOPBACK


class Onlooker(threading.Thread):
    """Calls `saw(type, object, moment)` for each event of one kind, in the order of their arrival."""

    def __init__(self, server, path, saw) -> None:
        super().__init__(daemon=True)
        layout, host = server._started, server.url.rpartition(":")  # noqa: SLF001 - the files of its own making
        context = ssl.create_default_context(cafile=str(layout.authority_file))
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
