"""One of several controllers works; with just its own rights; and it says how it is."""

from __future__ import annotations

import pytest
from tests.support.controller_process import ControllerProcess, FakeKubelet, SandboxNamespace
from tests.support.workload_manifests import cluster_rules, lease_rules

from holdfast.controller.leader_election import LEASE_NAME

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(180)]

RBAC = "rbac.authorization.k8s.io"


@pytest.fixture
def ns(control_plane, objects):
    return SandboxNamespace(objects, control_plane.create_namespace())


@pytest.fixture
def start_controller(control_plane, ns, tmp_path):
    """Starts controllers that are gone at the end, however the test ends."""
    made = []

    def begin(kubeconfig=None, state="leading", **options):
        number = len(made)
        given = kubeconfig or control_plane.kubeconfig
        each = ControllerProcess(given, ns.namespace, tmp_path / f"log-{number}", **options)
        made.append(each)
        return each.start(state)

    yield begin
    for each in made:
        each.kill()


def lease_holder(place):
    return place.get("Lease", LEASE_NAME)["spec"]["holderIdentity"]


def test_standby_takes_over_immediately_after_graceful_exit(ns, start_controller):
    first = start_controller(identity="first")
    second = start_controller(state="standing by", identity="second")
    assert lease_holder(ns) == "first"
    assert "holdfast_controller_leader 0" in second.http_get("/metrics")
    assert first.stop() == 0
    second.wait_state("leading")
    assert lease_holder(ns) == "second"
    assert ns.get("Lease", LEASE_NAME)["spec"]["leaseTransitions"] == 1


def test_standby_waits_for_lease_expiry_after_kill(ns, start_controller):
    first = start_controller(identity="first")
    second = start_controller(state="standing by", identity="second")
    first.kill()
    second.wait_state("leading")
    assert lease_holder(ns) == "second"


def test_restarted_controller_reacquires_its_own_lease(ns, start_controller):
    first = start_controller(identity="pod-1")
    first.kill()
    first.start("leading")
    assert lease_holder(ns) == "pod-1"


def test_leader_exits_when_lease_is_lost(ns, start_controller):
    first = start_controller(identity="first")
    ns.patch("Lease", LEASE_NAME, {"spec": {"holderIdentity": "another-process"}})
    assert first.child.wait_for_exit(30)
    assert first.child._process.returncode == 1
    assert "the lease was lost" in first.log()
    assert lease_holder(ns) == "another-process"


def test_health_and_metrics_endpoints(ns, start_controller):
    made = start_controller()
    assert made.http_get("/healthz") == "ok\n"
    assert made.http_get("/readyz") == "leading\n"
    assert "holdfast_controller_leader 1" in made.http_get("/metrics")


def test_installed_rbac_rules_are_sufficient(control_plane, ns, start_controller, objects):
    user = f"controller-{ns.namespace}"
    everywhere = {"name": user}
    here = {"name": user, "namespace": ns.namespace}
    subject = [{"kind": "User", "name": user, "apiGroup": RBAC}]
    for kind, metadata, rules in (
        ("ClusterRole", everywhere, cluster_rules()),
        ("Role", here, lease_rules()),
    ):
        role = {"apiGroup": RBAC, "kind": kind, "name": user}
        objects.create({"apiVersion": f"{RBAC}/v1", "kind": kind, "metadata": metadata, "rules": rules})
        objects.create(
            {
                "apiVersion": f"{RBAC}/v1",
                "kind": f"{kind}Binding",
                "metadata": metadata,
                "roleRef": role,
                "subjects": subject,
            }
        )
    made = start_controller(control_plane.user_kubeconfig(user), all_namespaces=True)
    with FakeKubelet(control_plane.kubeconfig, ns.namespace):
        ns.create_sandbox("a", service=True, volumeClaimTemplates=[
            {"metadata": {"name": "w"}, "spec": {"accessModes": ["ReadWriteOnce"],
             "resources": {"requests": {"storage": "1Mi"}}}}])  # fmt: skip
        ns.wait_conditions("Sandbox", "a", Ready="True DependenciesReady")
        template = {"podTemplate": {"spec": {"containers": [{"name": "main", "image": "app:1"}]}}}
        ns.create("SandboxTemplate", "t", template)
        ns.create("SandboxWarmPool", "t", {"replicas": 1, "sandboxTemplateRef": {"name": "t"}})
        ns.wait("SandboxWarmPool", "t", lambda found: found.get("status", {}).get("readyReplicas") == 1)
        ns.create("SandboxClaim", "c", {"warmPoolRef": {"name": "t"}})
        ns.wait_conditions("SandboxClaim", "c", Ready="True DependenciesReady")
        ns.patch("Sandbox", "a", {"spec": {"operatingMode": "Suspended", "service": False}})
        ns.wait_conditions("Sandbox", "a", Suspended="True PodTerminated")
        ns.wait_gone("Service", "a")
    assert "forbidden" not in made.log().lower()
    assert made.stop() == 0
