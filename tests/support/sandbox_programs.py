"""Programs that tests run inside a sandbox, and the tests of a user that have one."""

MALICIOUS_TAR_PROGRAM = """#!/usr/bin/env python3
import io, sys, tarfile

writer = tarfile.open(fileobj=sys.stdout.buffer, mode="w|")
for name in ("x/ok", "../evil", "/tmp/evil"):
    entry = tarfile.TarInfo(name)
    entry.size = 4
    writer.addfile(entry, io.BytesIO(b"evil"))
writer.close()
"""

UPPERCASE_SERVER = """
import socketserver

class Upper(socketserver.StreamRequestHandler):
    def handle(self):
        self.wfile.write(self.rfile.readline().upper())

socketserver.ThreadingTCPServer(("", 9000), Upper).serve_forever()
"""


CLOSING_SERVER = """
import socket, struct

server = socket.create_server(("", 9001))
print("listening", flush=True)
while True:
    one = server.accept()[0]
    word = one.recv(100)
    one.sendall(b"x" * 300_000)
    if word == b"cut\\n":
        one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    one.close()
"""

USER_TEST_MODULE = """
import pytest

@pytest.mark.sandbox(env={"COLOUR": "green"}, workspace=False)
def test_mine(sandbox):
    ended = sandbox.exec("sh", "-c", "echo $COLOUR; exit 4")
    assert (ended.exit_code, ended.text) == (4, "green\\n")
"""

UNSTARTABLE_SANDBOXES = {
    "ends": (["--command", "sh -c 'echo sad news; exit 3'"], "exited with code 3", "sad news"),
    "ends-well": (["--command", "true"], "exited with code 0", ""),
    "no-program": (["--command", "/no/such/program"], "no such file or directory", ""),
    "no-image": (["--image", "registry.invalid/none:1"], "ErrImagePull", "registry.invalid/none:1"),
    "taken": ([], "ReconcilerError", 'cannot adopt unowned pod "taken"'),
    "huge": (["--workspace-size", "900Ti"], "requests 900Ti, but the largest disk has", "GiB"),
    "no-pool": (["--template", "none"], "template none: not found", ""),
}
"""Sandboxes that never start: words of `create`, and what it and the condition say."""
