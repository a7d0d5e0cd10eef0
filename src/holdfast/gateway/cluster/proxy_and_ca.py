"""The step that gives sandboxes the proxy and the CA certificates of the settings.

A Secret and a ConfigMap in the namespace of the sandboxes contain them. The proxy settings and the CA file
are read when a plan is made, so that a missing file fails before anything is changed.
"""

from __future__ import annotations

import base64
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.errors import InvalidSettingError, ObjectConflictError
from holdfast.gateway.base_steps import ClusterStep
from holdfast.gateway.cluster.manifests import MANAGED_LABELS
from holdfast.gateway.logins import read_ca_file
from holdfast.gateway.proxy_variables import CLUSTER_DESTINATIONS, Proxy, read_proxy
from holdfast.kube import differences
from holdfast.sandbox import CA_BUNDLE_KEY, CA_CONFIG_MAP, PROXY_SECRET
from holdfast.workflow import ProbeResult, absent, done, partial

if TYPE_CHECKING:
    from holdfast.gateway.context import GatewayContext
    from holdfast.gateway.settings import Settings
    from holdfast.workflow import StepContext

_CA_KEY = "sandbox.ca_bundle"
_PEM_BLOCK = re.compile(rb"-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----")
# Kubernetes stores at most 1 MiB in a ConfigMap.
_MAX_BUNDLE_BYTES = 1_000_000


class HostSources(msgspec.Struct, frozen=True, kw_only=True):
    """The proxy variables and the CA bundle for sandboxes; None if they are not set."""

    proxy: Proxy | None
    ca_bundle: bytes | None


def read_host_sources(settings: Settings) -> HostSources:
    """Read the login of the proxy and the CA file.

    Raises:
        InvalidSettingError: One of them cannot be read.
    """
    path = settings.sandbox.ca_bundle
    return HostSources(
        proxy=read_proxy(settings.proxy, no_proxy=CLUSTER_DESTINATIONS),
        ca_bundle=None if path is None else _read_ca_bundle(Path(path)),
    )


def _read_ca_bundle(path: Path) -> bytes:
    from cryptography import x509

    content = read_ca_file(path, key=_CA_KEY, owner="the sandboxes")
    hint = f"Set {_CA_KEY} to the path of a PEM file with CA certificates."
    try:
        x509.load_pem_x509_certificates(content)
    except ValueError:
        raise InvalidSettingError(f"{_CA_KEY}: {path}: a certificate is damaged", hint=hint) from None
    bundle = join_certificates(public_roots(), content)
    if len(bundle) > _MAX_BUNDLE_BYTES:
        raise InvalidSettingError(f"{_CA_KEY}: {path}: too many certificates for a ConfigMap", hint=hint)
    return bundle


def public_roots() -> bytes:
    """The public CA certificates that programs trust without the setting."""
    import certifi

    return Path(certifi.where()).read_bytes()


def join_certificates(*bundles: bytes) -> bytes:
    """Return the certificates of all bundles, each once and without comments."""
    blocks = dict.fromkeys(
        block.replace(b"\r\n", b"\n") for bundle in bundles for block in _PEM_BLOCK.findall(bundle)
    )
    return b"".join(block + b"\n" for block in blocks)


class WriteHostSettings(ClusterStep):
    """Write the proxy and the CA bundle for sandboxes, and delete what is no longer set."""

    name = "write-host-settings"
    title = "Proxy and CA"
    needs = ("apply-workloads",)  # it creates the namespace of the sandboxes

    def __init__(self, gateway: GatewayContext, sources: HostSources) -> None:
        super().__init__(gateway)
        self.sources = sources

    def probe(self, ctx: StepContext) -> ProbeResult:
        if not self.has_cluster:
            return absent("no cluster yet") if self._summary() else done("not set")
        changed = [kind for kind, _, desired, live in self._objects(ctx) if _differs(desired, live)]
        if changed:
            return partial(f"{' and '.join(changed)} for sandboxes changed")
        return done(self._summary() or "not set")

    def run(self, ctx: StepContext) -> None:
        # Before the first write, so that no event, error or record contains the login.
        for secret in self.sources.proxy.secrets if self.sources.proxy else ():
            ctx.secret(secret.ref, secret.reveal())
        objects, namespace = self.objects(ctx), self.gateway.settings.sandbox_namespace
        for _, name, desired, live in self._objects(ctx):
            ctx.check_lock()
            if desired is not None and live is not None and not _is_managed(live):
                raise self._foreign_error(desired["kind"], name)
            if desired is not None and _differs(desired, live):
                objects.apply(desired, force=True)
            elif live is not None and desired is None:
                uid = live["metadata"]["uid"]
                objects.delete("Secret", name, namespace=namespace, uid=uid)
        ctx.note(self._summary() or "removed the proxy and the CA certificates of earlier settings")

    def _objects(
        self, ctx: StepContext
    ) -> list[tuple[str, str, dict[str, Any] | None, dict[str, Any] | None]]:
        """What each object is for, its name, its desired content, and the existing object."""
        objects, namespace = self.objects(ctx), self.gateway.settings.sandbox_namespace
        proxy = objects.get("Secret", PROXY_SECRET, namespace=namespace)
        ca = objects.get("ConfigMap", CA_CONFIG_MAP, namespace=namespace)
        bundle = self.sources.ca_bundle
        if bundle is None and ca is not None and _is_managed(ca):
            # Existing sandboxes trust only the certificates in this file, so it keeps the public ones.
            bundle = join_certificates(public_roots())
        found = [
            ("proxy", PROXY_SECRET, self._proxy_secret(), proxy),
            ("CA", CA_CONFIG_MAP, None if bundle is None else self._ca_config_map(bundle), ca),
        ]
        # There is nothing to withdraw in an object of another owner.
        return [
            (kind, name, desired, live if desired is not None or (live and _is_managed(live)) else None)
            for kind, name, desired, live in found
        ]

    def _foreign_error(self, kind: str, name: str) -> ObjectConflictError:
        path, namespace = self.gateway.files.kubeconfig, self.gateway.settings.sandbox_namespace
        options = f"--kubeconfig {path} -n {namespace}"
        return ObjectConflictError(
            f"{kind} {name} in namespace {namespace}: not created by holdfast",
            hint=f"If it is not needed, run `kubectl {options} delete {kind} {name}`, "
            "then run the same command again.",
        )

    def _proxy_secret(self) -> dict[str, Any] | None:
        if self.sources.proxy is None:
            return None
        data = {
            name: base64.b64encode(value.encode()).decode()
            for name, value in self.sources.proxy.variables.items()
        }
        return {**self._object("Secret", PROXY_SECRET), "type": "Opaque", "data": data}

    def _ca_config_map(self, bundle: bytes) -> dict[str, Any]:
        return {**self._object("ConfigMap", CA_CONFIG_MAP), "data": {CA_BUNDLE_KEY: bundle.decode()}}

    def _object(self, kind: str, name: str) -> dict[str, Any]:
        namespace = self.gateway.settings.sandbox_namespace
        metadata = {"name": name, "namespace": namespace, "labels": dict(MANAGED_LABELS)}
        return {"apiVersion": "v1", "kind": kind, "metadata": metadata}

    def _summary(self) -> str:
        parts = [
            *(["proxy"] if self.sources.proxy else []),
            *(["CA certificates"] if self.sources.ca_bundle else []),
        ]
        return " and ".join(parts)


def _is_managed(live: dict[str, Any]) -> bool:
    labels = live["metadata"].get("labels") or {}
    return MANAGED_LABELS.items() <= labels.items()


def _differs(desired: dict[str, Any] | None, live: dict[str, Any] | None) -> bool:
    if desired is None or live is None:
        return desired is not live
    # A key that is no longer set has to disappear, too.
    return bool(differences(desired, live)) or desired["data"].keys() != (live.get("data") or {}).keys()
