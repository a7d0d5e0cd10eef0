"""One of several controllers works; with just its own rights; and it says how it is."""

from __future__ import annotations

import pytest
from tests.support.controllers import Controller, Kubelet, Place

from holdfast.gateway.workloads.controller import cluster_rules, lease_rules

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(180)]

RBAC = "rbac.authorization.k8s.io"


@pytest.fixture
def place(control_plane, objects):
    return Place(objects, control_plane.create_namespace())


@pytest.fixture
def start(control_plane, place, tmp_path):
    """Starts controllers that are gone at the end, however the test ends."""
    made = []

    def begin(kubeconfig=None, state="leading", **options):
        number = len(made)
        given = kubeconfig or control_plane.kubeconfig
        each = Controller(given, place.namespace, tmp_path / f"log-{number}", **options)
        made.append(each)
        return each.start(state)

    yield begin
    for each in made:
        each.kill()


def holder(place):
    return place.get("Lease", "holdfast-controller")["spec"]["holderIdentity"]


def test_a_standby_takes_over_at_once_when_the_leader_ends_in_order(place, start):
    first = start(identity="first")
    second = start(state="standing by", identity="second")
    assert holder(place) == "first"
    assert "holdfast_controller_leads 0" in second.asked("/metrics")
    assert first.stop() == 0
    second.wait_state("leading")
    assert holder(place) == "second"
    assert place.get("Lease", "holdfast-controller")["spec"]["leaseTransitions"] == 1


def test_a_standby_waits_out_a_leader_that_was_killed(place, start):
    first = start(identity="first")
    second = start(state="standing by", identity="second")
    first.kill()
    second.wait_state("leading")
    assert holder(place) == "second"


def test_one_that_is_started_again_under_its_name_need_not_wait_for_itself(place, start):
    first = start(identity="pod-1")
    first.kill()
    first.start("leading")
    assert holder(place) == "pod-1"


def test_a_leader_that_lost_the_lease_ends(place, start):
    first = start(identity="first")
    place.patch("Lease", "holdfast-controller", {"spec": {"holderIdentity": "somebody"}})
    assert first.child.ended_within(30)
    assert first.child._process.returncode == 1
    assert "the lease was lost" in first.log()
    assert holder(place) == "somebody"


def test_health_and_metrics_are_served(place, start):
    made = start()
    assert made.asked("/healthz") == "ok\n"
    assert made.asked("/readyz") == "leading\n"
    assert "holdfast_controller_leads 1" in made.asked("/metrics")


def test_the_rights_that_up_gives_it_are_enough(control_plane, place, start, objects):
    user = f"controller-{place.namespace}"
    everywhere = {"name": user}
    here = {"name": user, "namespace": place.namespace}
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
    made = start(control_plane.user_kubeconfig(user), all_namespaces=True)
    with Kubelet(control_plane.kubeconfig, place.namespace):
        place.sandbox("a", service=True, volumeClaimTemplates=[
            {"metadata": {"name": "w"}, "spec": {"accessModes": ["ReadWriteOnce"],
             "resources": {"requests": {"storage": "1Mi"}}}}])  # fmt: skip
        place.wait_said("Sandbox", "a", Ready="True DependenciesReady")
        template = {"podTemplate": {"spec": {"containers": [{"name": "main", "image": "app:1"}]}}}
        place.make("SandboxTemplate", "t", template)
        place.make("SandboxWarmPool", "t", {"replicas": 1, "sandboxTemplateRef": {"name": "t"}})
        place.wait("SandboxWarmPool", "t", lambda found: found.get("status", {}).get("readyReplicas") == 1)
        place.make("SandboxClaim", "c", {"warmPoolRef": {"name": "t"}})
        place.wait_said("SandboxClaim", "c", Ready="True DependenciesReady")
        place.patch("Sandbox", "a", {"spec": {"operatingMode": "Suspended", "service": False}})
        place.wait_said("Sandbox", "a", Suspended="True PodTerminated")
        place.wait_gone("Service", "a")
    assert "forbidden" not in made.log().lower()
    assert made.stop() == 0
