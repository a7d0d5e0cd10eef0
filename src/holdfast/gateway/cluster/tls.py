"""Steps for the gateway's mutual TLS: one bundle in three Secrets, and the client's part of it on disk.

A valid bundle is kept, even if another program created it; any other is replaced as a whole. A run that
dies between two Secrets leaves parts that do not match, which the next run detects. Keys stay in memory:
results, events and the store never contain one. `pki` decides what is valid.

An invalid bundle is replaced only while the clocks of this machine and of the gateway agree: a certificate
that is expired by one clock only may be valid.
"""

from __future__ import annotations

import datetime as dt
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

from holdfast import pki  # its exports are imported on first use
from holdfast.api import parse_timestamp
from holdfast.errors import ApiUnreachableError, PermanentError
from holdfast.gateway.base_steps import ClusterStep
from holdfast.gateway.cluster.kubeconfig import kubernetes_get
from holdfast.gateway.cluster.manifests import MANAGED_LABELS, service_dns_names
from holdfast.gateway.spec import LOOPBACK, connect_address
from holdfast.workflow import ProbeResult, absent, done, partial

if TYPE_CHECKING:
    from holdfast.gateway.context import GatewayContext
    from holdfast.gateway.spec import GatewaySpec
    from holdfast.pki import CertificateBundle, StoredCredentials, ValidationResult
    from holdfast.workflow import StepContext

_BUNDLE_KEY = "gateway.bundle"
_MAX_REASONS = 2
_MAX_SKEW_SECONDS = 300.0


def utc_now() -> dt.datetime:
    """The time of this machine's clock."""
    return dt.datetime.now(dt.UTC)


def api_server_clock_skew(gateway: GatewayContext) -> float:
    """Seconds by which the clock of the gateway's API server is ahead of this machine's."""
    before = utc_now().timestamp()
    response = kubernetes_get(gateway, "/version")
    return clock_skew_seconds(response.date, before, utc_now().timestamp())


def clock_skew_seconds(timestamp: str, before: float, after: float) -> float:
    """Seconds by which another clock is ahead of ours.

    Args:
        timestamp: time of the other clock: an HTTP date or RFC 3339.
        before: our time when the request was sent.
        after: our time when the response arrived.
    """
    parse = parsedate_to_datetime if "," in timestamp else parse_timestamp
    try:
        remote = parse(timestamp).timestamp()
    except (ValueError, TypeError, OverflowError):
        return 0.0
    # The other clock was read between `before` and `after`: a time in that interval does not prove any skew.
    # The Date header has a resolution of one second.
    return remote - before if remote < before - 1 else max(0.0, remote - after)


def check_clock_skew(name: str, seconds: float) -> None:
    """Raise PermanentError if this machine and the gateway disagree on the time."""
    if abs(seconds) <= _MAX_SKEW_SECONDS:
        return
    direction = "behind" if seconds > 0 else "ahead of"
    raise PermanentError(
        f"clock skew: this machine's clock ({utc_now():%Y-%m-%d %H:%M} UTC) is "
        f"{_format_duration(abs(seconds))} {direction} the clock of gateway {name}; nothing was replaced",
        hint="Correct the clock of this machine or of the gateway's host, then run the same command again.",
    )


def _format_duration(seconds: float) -> str:
    """A duration in its largest unit."""
    for unit, name in ((86400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * unit:
            return f"{seconds / unit:.0f} {name}"
    return f"{seconds:.0f} seconds"


def server_names(spec: GatewaySpec, namespace: str) -> tuple[str, ...]:
    """All names and addresses of the gateway's API, from this machine and from inside the cluster."""
    listen = connect_address(spec.listen)
    names = ("localhost", LOOPBACK, *spec.api_names, listen, *service_dns_names(namespace))
    return tuple(dict.fromkeys(names))


def check_certificate_times(validation: ValidationResult, namespace: str) -> None:
    """Raise PermanentError for certificates from the future: a clock is or was wrong."""
    if "from-the-future" not in validation.codes:
        return
    text = next(problem.message for problem in validation.problems if problem.code == "from-the-future")
    raise PermanentError(
        f"clock skew: {text}; nothing was replaced",
        hint="Correct this machine's clock, then run the same command again. If it is correct, the "
        "certificates were created by a wrong clock: delete these Secrets in the namespace "
        f"{namespace} first: {', '.join(pki.SECRET_TYPES)}.",
    )


def summarize_reasons(validation: ValidationResult) -> str:
    """The first reasons on one line; there may be one per certificate."""
    texts = [problem.message for problem in validation.problems]
    more = len(texts) - _MAX_REASONS
    return "; ".join(texts[:_MAX_REASONS]) + (f"; and {more} more" if more > 0 else "")


class _TlsStep(ClusterStep):
    """A step that reads the bundle."""

    def read_secrets(self, ctx: StepContext) -> StoredCredentials[CertificateBundle]:
        """Read the three Secrets."""
        objects, namespace = self.objects(ctx), self.gateway.settings.namespace
        secrets = {name: objects.get("Secret", name, namespace=namespace) for name in pki.SECRET_TYPES}
        stored = pki.from_secret_data(
            {name: secret and (secret.get("data") or {}) for name, secret in secrets.items()}
        )
        # Registered immediately: from here on, no event, error or checkpoint can contain a key.
        if stored.value is not None:
            _redact_keys(ctx, stored.value)
        return stored

    def validate(self, ctx: StepContext, stored: StoredCredentials[CertificateBundle]) -> ValidationResult:
        """Validate the bundle.

        Raises:
            PermanentError: The bundle is invalid, but so may be a clock.
        """
        settings = self.gateway.settings
        validation = pki.validate_bundle(
            stored,
            names=server_names(self.gateway.spec, settings.namespace),
            at=utc_now(),
            renew_below=settings.certificates.renew_below,
        )
        if not validation.is_valid:
            # Only for an invalid bundle: a valid one is kept in any case, and needs no further request.
            policy = self.call_policy(ctx).replace(retry_on=ApiUnreachableError)
            check_clock_skew(self.gateway.name, policy.call(api_server_clock_skew, self.gateway))
        check_certificate_times(validation, settings.namespace)
        return validation


class ReconcileTls(_TlsStep):
    """Ensure one valid bundle in the cluster: keep it while it is valid, else replace all of it."""

    name = "reconcile-tls"
    title = "Certificates"
    needs = ("ensure-namespace",)
    touches = ("the gateway's TLS secrets",)

    def probe(self, ctx: StepContext) -> ProbeResult:
        if not self.has_cluster:
            return absent("no cluster yet")
        stored = self.read_secrets(ctx)
        validation = self.validate(ctx, stored)
        if validation.is_valid and stored.value is not None:
            return done(_validity_note(stored.value), result=_share_bundle(ctx, stored.value))
        if validation.codes == {"absent"}:
            return absent("no certificates yet")
        return partial(summarize_reasons(validation))

    def run(self, ctx: StepContext) -> dict[str, str]:
        # Read again: another program may have written a valid bundle since the probe. Replacing it would
        # disconnect all clients.
        stored = self.read_secrets(ctx)
        validation = self.validate(ctx, stored)
        if validation.is_valid and stored.value is not None:
            ctx.note(_validity_note(stored.value))
            return _share_bundle(ctx, stored.value)
        settings = self.gateway.settings
        bundle = pki.issue_bundle(
            server_names(self.gateway.spec, settings.namespace),
            at=utc_now(),
            lifetime=dt.timedelta(days=settings.certificates.life_days),
        )
        # Before the first write, so that no event, error or record contains a key.
        _redact_keys(ctx, bundle)
        # A kill between two Secrets leaves parts of two bundles; the next run detects that and replaces all.
        for name, data in pki.to_secret_data(bundle).items():
            ctx.progress(f"writing the secret {name}")
            self._write_secret(ctx, name, data)
        is_first = validation.codes == {"absent"}
        ctx.note(f"new, {_validity_note(bundle) if is_first else f'because {summarize_reasons(validation)}'}")
        return _share_bundle(ctx, bundle)

    def _write_secret(self, ctx: StepContext, name: str, data: dict[str, str]) -> None:
        ctx.check_lock()
        objects, namespace = self.objects(ctx), self.gateway.settings.namespace
        live = objects.get("Secret", name, namespace=namespace)
        # Type and content of an immutable Secret cannot be changed: delete it first.
        if live is not None and (live.get("type") != pki.SECRET_TYPES[name] or live.get("immutable")):
            seconds = self.gateway.settings.timeouts.objects
            # A kill after the deletion leaves an incomplete bundle, which the next run replaces as a whole.
            objects.delete("Secret", name, namespace=namespace, uid=live["metadata"]["uid"], wait=seconds)
        manifest = {
            "apiVersion": "v1",
            "kind": "Secret",
            "type": pki.SECRET_TYPES[name],
            "metadata": {"name": name, "namespace": namespace, "labels": MANAGED_LABELS},
            "data": data,
        }
        objects.apply(manifest, force=True)


class WriteClientFiles(_TlsStep):
    """Write the client certificate to this machine; the old one stays until the new one has been used."""

    name = "write-client-files"
    title = "Client files"
    needs = ("reconcile-tls",)

    def probe(self, ctx: StepContext) -> ProbeResult:
        bundle = self._bundle(ctx) if self.has_cluster else None
        if bundle is None:
            return absent("the gateway has no certificates yet")
        files = self.gateway.files.client_certificates
        stored = files.read()
        renew_below = self.gateway.settings.certificates.renew_below
        validation = pki.validate_client_identity(stored, at=utc_now(), ca=bundle.ca, renew_below=renew_below)
        if validation.codes == {"absent"}:
            return absent("no client files yet")
        if not validation.is_valid:
            return partial(summarize_reasons(validation))
        if stored.value != bundle.client_identity:
            return partial("the gateway has another client certificate")
        return done(str(files.current))

    def run(self, ctx: StepContext) -> None:
        bundle = self._bundle(ctx)
        if bundle is None:
            raise PermanentError(
                f"gateway {self.gateway.name}: its TLS secrets changed while holdfast read them",
                hint="Run the same command again.",
            )
        probe = ctx.probe_result
        reason = probe.reason if probe is not None and probe.state != "absent" else ""
        files = self.gateway.files.client_certificates
        files.write(bundle.client_identity)
        ctx.note(f"{files.current}" + (f": {reason}" if reason else ""))

    def _bundle(self, ctx: StepContext) -> CertificateBundle | None:
        """The bundle of the step before; in a preview, that of the cluster."""
        shared: CertificateBundle | None = ctx.shared.get(_BUNDLE_KEY)
        return shared if shared is not None else self.read_secrets(ctx).value


def _share_bundle(ctx: StepContext, bundle: CertificateBundle) -> dict[str, str]:
    """Pass the bundle to later steps in memory, and return its public digest for the store."""
    # Readers may run on other threads. They need `reconcile-tls`, so they start after this assignment.
    ctx.shared[_BUNDLE_KEY] = bundle
    return {"bundle": bundle.fingerprint}


def _redact_keys(ctx: StepContext, bundle: CertificateBundle) -> None:
    # A bundle does not contain the key of the CA: `issue_bundle` discards it.
    ctx.secret("the server's key", bundle.server.key)
    ctx.secret("the client's key", bundle.client.key)


def _validity_note(bundle: CertificateBundle) -> str:
    from cryptography import x509

    certificate = x509.load_pem_x509_certificate(bundle.server.certificate)
    return f"valid until {certificate.not_valid_after_utc:%Y-%m-%d}"
