"""Pods that will not recover without a change."""

import datetime as dt

import pytest

from holdfast.gateway.doctor.checks.cluster import pod_problem

NOW = dt.datetime(2026, 11, 16, 12, tzinfo=dt.UTC)


def pod(**status):
    return {"metadata": {"creationTimestamp": "2026-11-16T11:00:00Z"}, "status": status}


def waiting(reason):
    return {"name": "m", "state": {"waiting": {"reason": reason, "message": "restarting m"}}}


@pytest.mark.parametrize(
    ("obj", "expected"),
    [
        (pod(phase="Running"), ""),
        (pod(phase="Succeeded"), ""),
        (pod(phase="Failed", reason="Evicted"), "Evicted"),
        (pod(containerStatuses=[waiting("CrashLoopBackOff")]), "CrashLoopBackOff: restarting m"),
        (pod(initContainerStatuses=[waiting("ErrImagePull")]), "ErrImagePull: restarting m"),
        (pod(containerStatuses=[waiting("ContainerCreating")]), ""),
        (pod(phase="Pending", conditions=[{"status": "False", "message": "no space."}]), "no space"),
        ({"metadata": {"deletionTimestamp": "2026-11-16T11:59:30Z"}, "status": {}}, ""),
        ({"metadata": {"deletionTimestamp": "2026-11-16T11:00:00Z"}, "status": {}}, "does not terminate"),
    ],
)
def test_unhealthy_pods_are_found(obj, expected):
    description = pod_problem(obj, NOW)
    assert expected in description
    assert bool(expected) == bool(description)
