"""Checks of the gateway's APIs, its certificates, and the objects of its cluster."""

from __future__ import annotations

import datetime as dt
import ssl
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from holdfast import pki  # its exports are imported on first use
from holdfast.api import parse_optional_timestamp
from holdfast.errors import ApiUnreachableError, HoldfastError
from holdfast.gateway.cluster import get_gateway_info, permanent_failure
from holdfast.gateway.doctor.facts import FactUnavailable
from holdfast.gateway.doctor.findings import Finding, FixedBy, Severity, new_finding, note, problem, warning
from holdfast.gateway.pv_migration import (
    LOCAL_PATH_DIR,
    Membership,
    NodeView,
    classify_nodes,
    is_stranded,
    migration_blocker,
    pinned_node_names,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.gateway.doctor.facts import GatewayFacts

_PEM_END = b"-----END CERTIFICATE-----\n"
# The node renews its certificates long before only this part of their lifetime remains.
_EXPIRY_WARNING_FRACTION = 0.1
# How long a pod may be pending or terminating before it is reported.
_STUCK_AFTER_SECONDS = 120.0
_MAX_LISTED_POLICIES = 5
_NO_REASON = "no reason given"


def check_tunnel(facts: GatewayFacts) -> Iterator[Finding]:
    """The tunnel to a gateway on a remote host is open while the gateway runs."""
    if facts.gateway.host.tunnel is None:
        return
    _ = facts.running_container
    if not facts.is_tunnel_open:
        cause = "The gateway runs, but the ssh tunnel to its ports is down."
        remote = facts.gateway.host.remote
        yield problem("tunnel-down", remote, cause, fixed_by="fix", repair="--fix reopens it.")


def check_kubernetes_api(facts: GatewayFacts) -> Iterator[Finding]:
    """The API server answers requests with the node's credentials and with this machine's kubeconfig."""
    # The node's credentials first: an outdated kubeconfig here must not appear as a server that is down.
    try:
        facts.api_get("/readyz")
    except HoldfastError as error:
        server, cause = facts.credentials.server, f"The node runs, but {error.message}."
        logs = f"Its log: `holdfast logs {facts.name} --component kube-apiserver`."
        if isinstance(error, ApiUnreachableError):
            repair = f"--fix waits until the API server is ready. {logs}"
            yield problem(error.code, server, cause, fixed_by="fix", repair=repair)
        else:  # `up` cannot repair it: the credentials are the node's own
            yield problem("api-untrusted", server, cause, fixed_by="person", repair=error.hint or logs)
        return
    if facts.local_credentials in (None, facts.credentials):
        return  # the kubeconfig check reports a missing or damaged file
    try:
        facts.api_get("/readyz", facts.local_credentials)
    except HoldfastError as error:
        path = str(facts.gateway.files.kubeconfig)
        cause = f"The API server answers, but rejects this machine's kubeconfig: {error.message}."
        repair = "--fix writes the kubeconfig from the node's."
        yield problem("api-refused", path, cause, fixed_by="fix", repair=repair)


def check_gateway_api(facts: GatewayFacts) -> Iterator[Finding]:
    """The holdfast API on the gateway accepts this machine's client certificate."""
    if not facts.gateway.settings.workloads:
        raise FactUnavailable("holdfast's workloads are disabled (workloads = false)")
    facts.require_connection()
    files = facts.gateway.files
    identity = files.client_certificates.read().value
    if identity is None:
        cause = "This machine has no usable client certificate for the gateway's holdfast API."
        repair = "--fix writes one, as `up` does."
        yield problem("client-files-bad", str(files.mtls), cause, fixed_by="fix", repair=repair)
        return
    try:
        facts.read_policy.call(get_gateway_info, facts.gateway, identity)
    except HoldfastError as error:
        url, cause = facts.gateway.gateway_api_url, f"The gateway's holdfast API: {error.message}."
        repair = "--fix applies its workloads and waits for them, as `up` does."
        yield problem("gateway-api-unreachable", url, cause, fixed_by="fix", repair=repair)


def check_client_files(facts: GatewayFacts) -> Iterator[Finding]:
    """The client certificate for the holdfast API is complete, private and not about to expire."""
    files, settings = facts.gateway.files, facts.gateway.settings
    if not files.mtls.exists():
        return
    validation = pki.validate_client_identity(
        files.client_certificates.read(),
        at=dt.datetime.now(dt.UTC),
        renew_below=settings.certificates.renew_below,
    )
    if not validation.is_valid and validation.codes != {"absent"}:
        fixed_by: FixedBy = "fix" if settings.workloads else "command"
        repair = "--fix replaces it, as `up` does."
        if not settings.workloads:
            repair = f"To install the workloads, run `HOLDFAST_WORKLOADS=true holdfast up {facts.name}`."
        yield problem("client-files-bad", str(files.mtls), f"{validation}.", fixed_by=fixed_by, repair=repair)


def check_certificates(facts: GatewayFacts) -> Iterator[Finding]:
    """Neither the kubeconfig's client certificate nor the API server's certificate is about to expire."""
    if facts.local_credentials is not None:  # otherwise reported by the kubeconfig check
        path, pem = str(facts.gateway.files.kubeconfig), facts.local_credentials.certificate
        repair = "--fix writes the kubeconfig from the node's, which the node renews."
        yield from _check_expiry("The certificate in the kubeconfig", pem, path, "fix", repair)
    _ = facts.running_container
    server = urlsplit(facts.credentials.server)
    address = (server.hostname or "", server.port or 443)
    try:
        # Without verification, which would reject an expired certificate before its date is known.
        pem = ssl.get_server_certificate(address, timeout=facts.gateway.settings.timeouts.glance).encode()
    except OSError:
        return  # reported by the API check
    repair = f"Run `holdfast restart {facts.name}`: the node renews it at its start."
    yield from _check_expiry("The API server's certificate", pem, server.netloc, "command", repair)


def _check_expiry(what: str, pem: bytes, subject: str, fixed_by: FixedBy, repair: str) -> Iterator[Finding]:
    leaf = b"".join(pem.partition(_PEM_END)[:2])  # a chain may follow the leaf certificate
    now = dt.datetime.now(dt.UTC)
    validation = pki.validate_period(leaf, what, at=now, renew_below=_EXPIRY_WARNING_FRACTION)
    if not validation.is_valid:
        severity: Severity = "warning" if validation.codes == {"near-expiry"} else "problem"
        cause = f"{validation}."
        yield new_finding(severity, "certificates-expiring", subject, cause, fixed_by=fixed_by, repair=repair)


def check_node(facts: GatewayFacts) -> Iterator[Finding]:
    """The gateway's own node is registered, ready, schedulable and not under resource pressure."""
    control_plane = _node_membership(facts).control_plane
    if control_plane is None:
        cause = "The API server answers, but the gateway's node is not registered."
        repair = "--fix waits until it is registered."
        yield problem("node-missing", facts.gateway.node_name, cause, fixed_by="fix", repair=repair)
        return
    name = control_plane.name
    (node,) = (obj for obj in facts.list_objects("/api/v1/nodes") if _object_name(obj) == name)
    conditions = {row["type"]: row for row in node.get("status", {}).get("conditions", ())}
    ready = conditions.get("Ready", {})
    if ready.get("status") != "True":
        cause = f"The node is not ready: {ready.get('message') or ready.get('reason') or _NO_REASON}."
        repair = "--fix waits until it is ready and reports what it waits for."
        yield problem("node-not-ready", name, cause, fixed_by="fix", repair=repair)
    for kind, condition in conditions.items():
        if kind.endswith("Pressure") and condition["status"] == "True":
            cause = f"{kind}: {condition.get('message', '')}. Pods may be evicted."
            repair = "Free that resource on the engine's host."
            yield warning("node-pressure", name, cause, fixed_by="person", repair=repair)
    if node.get("spec", {}).get("unschedulable"):
        repair = f"Run `kubectl --kubeconfig {facts.gateway.files.kubeconfig} uncordon {name}`."
        cause = "The node is cordoned: no new pods are scheduled on it."
        yield warning("node-cordoned", name, cause, fixed_by="command", repair=repair)


def check_stale_nodes(facts: GatewayFacts) -> Iterator[Finding]:
    """Every node in the cluster is a member of this gateway."""
    cause = "The node is not a member of this gateway; pods on it never terminate."
    repair = "--fix removes it from the cluster and pins its volumes to the current node."
    for stale in _node_membership(facts).stale:
        yield problem("stale-nodes", stale.name, cause, fixed_by="fix", repair=repair)


def check_persistent_volumes(facts: GatewayFacts) -> Iterator[Finding]:
    """No PersistentVolume is pinned to a node that does not exist."""
    node_names = _node_membership(facts).node_names
    directory = f"{facts.gateway.contract.state_path}/{LOCAL_PATH_DIR}"
    for volume in facts.list_objects("/api/v1/persistentvolumes"):
        if not is_stranded(volume, node_names):
            continue
        pinned = ", ".join(sorted(pinned_node_names(volume)))
        cause = f"The volume is pinned to {pinned}, which does not exist; its files are unchanged."
        blocker = migration_blocker(volume, directory)
        if blocker:
            repair = f"holdfast cannot pin it to another node: {blocker}."
            yield warning("volumes-unpinned", _object_name(volume), cause, fixed_by="person", repair=repair)
        else:
            repair = "--fix pins it to this node, for the same path and PVC."
            yield problem("volumes-unpinned", _object_name(volume), cause, fixed_by="fix", repair=repair)


def _node_membership(facts: GatewayFacts) -> Membership:
    nodes = [NodeView.from_object(obj) for obj in facts.list_objects("/api/v1/nodes")]
    return classify_nodes(nodes, gateway=facts.gateway.name, hostname=facts.running_container.hostname)


def check_pods(facts: GatewayFacts) -> Iterator[Finding]:
    """Pods start, keep running, and disappear when they are deleted."""
    gateway_namespaces = {"kube-system", "local-path-storage", facts.gateway.settings.namespace}
    now = dt.datetime.now(dt.UTC)
    for pod in facts.list_objects("/api/v1/pods"):
        trouble = pod_problem(pod, now)
        if not trouble:
            continue
        namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
        path, subject = facts.gateway.files.kubeconfig, f"pod/{name}"
        yield new_finding(
            "problem" if namespace in gateway_namespaces else "warning",
            "pods-failing",
            f"{namespace}/{name}",
            f"The pod {trouble}.",
            fixed_by="person",
            repair=f"Run `kubectl --kubeconfig {path} -n {namespace} describe {subject}`.",
        )


def check_network_policies(facts: GatewayFacts) -> Iterator[Finding]:
    """Report NetworkPolicies, because the node's network does not enforce them."""
    policies = facts.list_objects("/apis/networking.k8s.io/v1/networkpolicies")
    if policies:
        names = sorted(f"{obj['metadata']['namespace']}/{_object_name(obj)}" for obj in policies)
        listed = ", ".join(names[:_MAX_LISTED_POLICIES]) + (" …" if len(names) > _MAX_LISTED_POLICIES else "")
        cause = "The node's network does not enforce network policies: every pod can reach every other pod."
        repair = "Do not rely on network policies to isolate pods."
        yield note("network-policy-unenforced", listed, cause, repair=repair)


def pod_problem(pod: dict[str, Any], now: dt.datetime) -> str:
    """Describe why a pod will not recover without a change; empty for all other pods."""
    status, metadata = pod.get("status") or {}, pod["metadata"]
    if metadata.get("deletionTimestamp"):
        # The deletion timestamp of a pod is the end of its grace period, not the time of the request.
        is_stuck = _age_seconds(metadata["deletionTimestamp"], now) > _STUCK_AFTER_SECONDS
        return "was deleted, but does not terminate" if is_stuck else ""
    if status.get("phase") == "Failed":
        return f"failed ({status.get('reason') or _NO_REASON})"
    if failure := permanent_failure(pod):
        return f"cannot run: {failure}"
    is_late = _age_seconds(metadata.get("creationTimestamp", ""), now) > _STUCK_AFTER_SECONDS
    if status.get("phase") == "Pending" and is_late:
        messages = [
            str(row["message"]).rstrip(".")
            for row in status.get("conditions") or ()
            if row.get("status") == "False" and row.get("message")
        ]
        return f"has been pending for more than {_STUCK_AFTER_SECONDS:.0f} s: {(messages or [_NO_REASON])[0]}"
    return ""


def _age_seconds(timestamp: str, now: dt.datetime) -> float:
    created = parse_optional_timestamp(timestamp)
    return (now - created).total_seconds() if created is not None else 0.0


def _object_name(obj: dict[str, Any]) -> str:
    return str(obj["metadata"]["name"])
