"""The gateway's mutual TLS: one bundle in three Secrets of the cluster, and the client's part of it on disk.

What is good is kept, whoever made it; what is not is replaced as a whole, and the line says why. A run that
died between two Secrets leaves parts that do not belong together, which the next one finds. Keys stay in
memory: neither results nor events nor the store ever hold one. Not here: what good means (the pki floor).
"""

from __future__ import annotations

import datetime as dt
import ipaddress
from typing import TYPE_CHECKING, Any

from holdfast.engine import Verdict, absent, done, partial
from holdfast.errors import PermanentError
from holdfast.gateway import clocks
from holdfast.gateway.steps.cluster import ClusterStep
from holdfast.gateway.workloads.api_server import service_names
from holdfast.gateway.workloads.blueprint import MANAGED
from holdfast.kube.reach import is_unreachable

if TYPE_CHECKING:
    from holdfast.engine import Context
    from holdfast.gateway.spec import GatewaySpec
    from holdfast.pki import Bundle, ClientFiles, Judgement, Stored

_SHARED = "gateway.bundle"
_MOST_REASONS = 2


def server_names(spec: GatewaySpec, namespace: str) -> tuple[str, ...]:
    """Every name and address under which the gateway's API is reached, from this machine and from inside."""
    listen = () if _is_unspecified(spec.listen) else (spec.listen,)
    names = ("localhost", "127.0.0.1", *spec.api_names, *listen, *service_names(namespace))
    return tuple(dict.fromkeys(names))


def refuse_wrong_clock(judgement: Judgement, namespace: str) -> None:
    """Certificates from the future say that a clock is off, or was: nothing is replaced on its word."""
    if "from-the-future" not in judgement.codes:
        return
    from holdfast.pki import SECRET_TYPES

    text = next(reason.text for reason in judgement.reasons if reason.code == "from-the-future")
    raise PermanentError(
        f"a clock is off: {text}; nothing was replaced",
        hint="Set this machine's clock right, then run the same command again. If it is right, the clock "
        f"that they were made by was not: remove them first (kubectl -n {namespace} delete secret "
        f"{' '.join(SECRET_TYPES)}).",
    )


def shortly(judgement: Judgement) -> str:
    """The reasons in one line, for there may be one for each certificate."""
    texts = [reason.text for reason in judgement.reasons]
    more = len(texts) - _MOST_REASONS
    return "; ".join(texts[:_MOST_REASONS]) + (f"; and {more} more" if more > 0 else "")


class _TlsStep(ClusterStep):
    """What both steps know of the bundle."""

    def stored(self, ctx: Context) -> Stored[Bundle]:
        """The three Secrets as they are now."""
        from holdfast.pki import SECRET_TYPES, from_secret_data

        objects, namespace = self.objects(ctx), self.work.settings.namespace
        found = {name: objects.get("Secret", name, namespace=namespace) for name in SECRET_TYPES}
        stored = from_secret_data({name: each and (each.get("data") or {}) for name, each in found.items()})
        if stored.bundle is not None:
            _learn(ctx, stored.bundle)
        return stored

    def judged(self, ctx: Context, stored: Stored[Bundle]) -> Judgement:
        """What is to be said against it; only where the gateway's clock and this machine's agree."""
        from holdfast.pki import judge

        settings = self.work.settings
        judgement = judge(
            stored,
            names=server_names(self.work.spec, settings.namespace),
            at=clocks.now(),
            renew_below=settings.certificates.renew_below,
        )
        if not judgement.good:
            asking = self.calls(ctx).with_(retry_on=is_unreachable)
            clocks.refuse_other_time(self.work.name, asking.call(clocks.ahead_of_us, self.work))
        refuse_wrong_clock(judgement, settings.namespace)
        return judgement


class ReconcileTls(_TlsStep):
    """One good bundle in the cluster: kept as long as it is good, else replaced as a whole."""

    name = "reconcile-tls"
    title = "Certificates"
    needs = ("ensure-namespace",)
    touches = ("the gateway's TLS secrets",)

    def probe(self, ctx: Context) -> Verdict:
        if not self.has_cluster:
            return absent("there is no cluster yet")
        stored = self.stored(ctx)
        judgement = self.judged(ctx, stored)
        if judgement.good and stored.bundle is not None:
            return done(_good_until(stored.bundle), result=_kept(ctx, stored.bundle))
        if judgement.codes == {"absent"}:
            return absent("there are none yet")
        return partial(shortly(judgement))

    def run(self, ctx: Context) -> dict[str, str]:
        from holdfast.pki import issue, to_secret_data

        stored = self.stored(ctx)
        judgement = self.judged(ctx, stored)
        if judgement.good and stored.bundle is not None:
            ctx.note(_good_until(stored.bundle))
            return _kept(ctx, stored.bundle)
        settings = self.work.settings
        bundle = issue(
            server_names(self.work.spec, settings.namespace),
            at=clocks.now(),
            life=dt.timedelta(days=settings.certificates.life_days),
        )
        _learn(ctx, bundle)
        for name, data in to_secret_data(bundle).items():
            ctx.progress(f"writing the secret {name}")
            self._write(ctx, name, data)
        first = judgement.codes == {"absent"}
        ctx.note(f"new, {_good_until(bundle)}" if first else f"new, because {shortly(judgement)}")
        return _kept(ctx, bundle)

    def _write(self, ctx: Context, name: str, data: dict[str, str]) -> None:
        from holdfast.pki import SECRET_TYPES

        ctx.check_lock()
        objects, namespace = self.objects(ctx), self.work.settings.namespace
        live = objects.get("Secret", name, namespace=namespace)
        if live is not None and (live.get("type") != SECRET_TYPES[name] or live.get("immutable")):
            seconds = self.work.settings.timeouts.objects
            objects.delete("Secret", name, namespace=namespace, uid=live["metadata"]["uid"], wait=seconds)
        objects.apply(_secret(name, namespace, SECRET_TYPES[name], data), force=True)


class WriteClientFiles(_TlsStep):
    """The client's certificate on this machine; the old one stays beside it until the new one has worked."""

    name = "write-client-files"
    title = "Client files"
    needs = ("reconcile-tls",)

    @property
    def files(self) -> ClientFiles:
        from holdfast.pki import ClientFiles

        return ClientFiles(self.work.files.mtls)

    def probe(self, ctx: Context) -> Verdict:
        from holdfast.pki import judge_client

        bundle = self._bundle(ctx) if self.has_cluster else None
        if bundle is None:
            return absent("the gateway has no certificates yet")
        found = self.files.read()
        share = self.work.settings.certificates.renew_below
        judgement = judge_client(found, at=clocks.now(), ca=bundle.ca, renew_below=share)
        if judgement.codes == {"absent"}:
            return absent("there are none yet")
        if not judgement.good:
            return partial(shortly(judgement))
        if found.bundle != bundle.identity:
            return partial("the gateway has another client certificate")
        return done(str(self.files.current))

    def run(self, ctx: Context) -> None:
        bundle = self._bundle(ctx)
        if bundle is None:
            raise PermanentError(
                "the gateway's secrets were changed while they were read",
                hint="Run the same command again.",
            )
        first = ctx.verdict is not None and ctx.verdict.state == "absent"
        reason = "" if first or ctx.verdict is None else ctx.verdict.reason
        self.files.write(bundle.identity)
        ctx.note(f"{self.files.current}" + (f": {reason}" if reason else ""))

    def _bundle(self, ctx: Context) -> Bundle | None:
        """What the step before found or made, else (in a preview) what the cluster has."""
        found: Bundle | None = ctx.shared.get(_SHARED)
        return found if found is not None else self.stored(ctx).bundle


def _kept(ctx: Context, bundle: Bundle) -> dict[str, str]:
    """Hand the bundle to later steps in memory, and its public digest to the store."""
    ctx.shared[_SHARED] = bundle
    return {"bundle": bundle.fingerprint}


def _learn(ctx: Context, bundle: Bundle) -> None:
    """From here on the engine strikes these keys out of whatever is written down."""
    ctx.secret("the server's key", bundle.server.key)
    ctx.secret("the client's key", bundle.client.key)


def _good_until(bundle: Bundle) -> str:
    from cryptography import x509

    return (
        f"good until {x509.load_pem_x509_certificate(bundle.server.certificate).not_valid_after_utc:%Y-%m-%d}"
    )


def _secret(name: str, namespace: str, kind: str, data: dict[str, str]) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": kind,
        "metadata": {"name": name, "namespace": namespace, "labels": MANAGED},
        "data": data,
    }


def _is_unspecified(listen: str) -> bool:
    try:
        return ipaddress.ip_address(listen.strip("[]")).is_unspecified
    except ValueError:
        return False
