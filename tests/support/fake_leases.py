"""A fake API server with one Lease: versions, conflicts, and waits that fail before their deadline."""

from __future__ import annotations

import copy

from holdfast.errors import DeadlineExceededError, ObjectConflictError


class FakeLeases:
    """Stores the Lease of a leader election."""

    def __init__(self, holder=None):
        self.lease, self.version = None, 0
        if holder is not None:
            self.store({"holderIdentity": holder, "leaseDurationSeconds": 15})

    @property
    def holder(self):
        return self.lease["spec"]["holderIdentity"]

    def store(self, spec):
        self.version += 1
        old = self.lease["spec"] if self.lease else {}
        metadata = {"name": "lease", "resourceVersion": str(self.version)}
        self.lease = {"kind": "Lease", "metadata": metadata, "spec": {**old, **spec}}
        return copy.deepcopy(self.lease)

    async def get(self, kind, name, *, namespace):
        return copy.deepcopy(self.lease)

    async def create(self, manifest):
        if self.lease is not None:
            raise ObjectConflictError("Lease: exists")
        return self.store(manifest["spec"])

    async def patch(self, kind, name, patch, *, namespace):
        if patch["metadata"]["resourceVersion"] != self.lease["metadata"]["resourceVersion"]:
            raise ObjectConflictError("Lease: another version")
        return self.store(patch["spec"])

    async def wait(self, kind, name, until, *, namespace, deadline):
        raise DeadlineExceededError("Lease: the retries ended early")
