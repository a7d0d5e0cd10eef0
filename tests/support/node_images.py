"""Node images of a test's own, made from the built one: other labels, or a program that does not work."""

from __future__ import annotations

import io
import tarfile
import uuid
from typing import TYPE_CHECKING, Self

from holdfast.containers import labels
from holdfast.gateway.context import DEFAULT_IMAGE
from holdfast.remote import connect

if TYPE_CHECKING:
    from holdfast.containers import ContainerEngine


class NodeImages:
    """`with NodeImages() as images:` builds images with unique names, and removes them at the end."""

    def __init__(self, engine: ContainerEngine | None = None) -> None:
        self._client = (engine or connect()).client
        self._repository = f"t-node-{uuid.uuid4().hex[:8]}"
        self._created: list[str] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for reference in self._created:
            self.remove(reference)

    def build(
        self,
        tag: str,
        *,
        base: str = DEFAULT_IMAGE,
        entrypoint: list[str] | None = None,
        programs: dict[str, str] | None = None,
        kubernetes: str | None = None,
    ) -> str:
        """An image with another id than its base; its name. `programs` are scripts in place of files."""
        base_labels = self._client.inspect_image(base)["Config"]["Labels"]
        conf: dict = {"Labels": {**base_labels, "dev.holdfast.test": tag}}
        if kubernetes is not None:
            conf["Labels"][labels.KUBERNETES] = kubernetes
        if entrypoint is not None:
            conf["Entrypoint"] = entrypoint
        container = self._client.create_container(base)["Id"]
        try:
            for path, script in (programs or {}).items():
                folder, _, name = path.rpartition("/")
                self._client.put_archive(container, folder, _tar_with_script(name, script))
            self._client.commit(container, repository=self._repository, tag=tag, conf=conf)
        finally:
            self._client.remove_container(container, force=True)
        reference = f"{self._repository}:{tag}"
        self._created.append(reference)
        return reference

    def id_of(self, reference: str) -> str:
        return str(self._client.inspect_image(reference)["Id"])

    def remove(self, reference: str) -> None:
        """Remove an image, even if containers use it."""
        import docker.errors

        try:
            self._client.remove_image(reference, force=True)
        except docker.errors.NotFound:
            return


def _tar_with_script(name: str, script: str) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        member = tarfile.TarInfo(name)
        member.size, member.mode = len(script), 0o755
        archive.addfile(member, io.BytesIO(script.encode()))
    return packed.getvalue()
