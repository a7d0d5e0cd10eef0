"""Pin PersistentVolumes to another node without losing them or their PVCs; resumable after a crash.

The node affinity of a volume is immutable, so the object is replaced by one for the same path and PVC:

    retain → write-intent → delete → remove-finalizer → create → delete-intent → bound → policy restored

`next_action` derives the next action from the cluster alone. The PVC is never changed: it is Lost while its
volume is missing, and becomes Bound when a volume that names its uid exists. The binder controller checks
lost PVCs every 15 seconds, so all volumes are recreated before the migrator waits for the first PVC.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec

from holdfast.containers import run_in_container
from holdfast.errors import (
    ApiRequestRejectedError,
    ContainerEngineError,
    ObjectConflictError,
    TemporaryError,
    WaitFailedError,
)
from holdfast.gateway.base_steps import progress_reporter
from holdfast.gateway.pv_migration.find_stranded import (
    INTENTS_CONFIG_MAP,
    INTENTS_NAMESPACE,
    RESTORE_POLICY_ANNOTATION,
    RETAIN,
    MigrationPlan,
    has_matching_pvc,
    is_replacement_of,
    is_stranded,
    metadata,
    object_annotations,
    other_finalizers,
    plan_migration,
    pvc_reference,
    replacement_volume,
)
from holdfast.gateway.pv_migration.stale_nodes import NO_CLUSTER, NodesStep
from holdfast.kube import WaitResult, object_deleted
from holdfast.workflow import ProbeResult, absent, done, partial

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from holdfast.kube import Objects, WaitCondition
    from holdfast.workflow import StepContext

MigrationAction: TypeAlias = Literal[
    "retain", "write-intent", "delete", "remove-finalizer", "create", "delete-intent", "give-up", "gone"
]

# The directory below the node's state in which its storage provisioner creates volumes.
LOCAL_PATH_DIR = "local-path"
# A migration takes six actions. More mean that another client changes the volume meanwhile.
_MAX_ACTIONS = 20
_INTENTS = f"ConfigMap {INTENTS_NAMESPACE}/{INTENTS_CONFIG_MAP}"
_UNPINNED: dict[str, Any] = {"spec": {}}


class MigrationResult(msgspec.Struct, frozen=True, kw_only=True):
    """Migrated volumes, and those that were not migrated, with the reason."""

    volumes: tuple[str, ...] = ()
    skipped: dict[str, str] = {}

    def summary(self) -> str:
        parts = [f"migrated: {', '.join(self.volumes)}"] if self.volumes else []
        parts += [f"{name} not migrated: {reason}" for name, reason in self.skipped.items()]
        return "; ".join(parts) or "none"


def next_action(intent: dict[str, Any] | None, live: dict[str, Any] | None) -> MigrationAction:
    """Decide the next action of one migration.

    Invariants: a volume is deleted only while its manifest is in the write-ahead list and its policy is
    Retain; it is created only from the list; its entry is deleted only when the replacement exists.

    Args:
        intent: The manifest in the write-ahead list.
        live: The volume that has the name now.
    """
    if live is None:
        return "gone" if intent is None else "create"
    is_terminating = bool(metadata(live).get("deletionTimestamp"))
    if intent is None and is_terminating:
        return "gone"
    if intent is not None and metadata(live)["uid"] != metadata(intent)["uid"]:
        return "delete-intent" if is_replacement_of(live, intent) else "give-up"
    if live["spec"]["persistentVolumeReclaimPolicy"] != RETAIN:
        return "retain"
    if intent is None:
        return "write-intent"
    return "remove-finalizer" if is_terminating else "delete"


def write_intent(cluster: Objects, volume: dict[str, Any]) -> dict[str, Any]:
    """Add a volume to the write-ahead list; on return the entry is in the datastore."""
    if cluster.get("ConfigMap", INTENTS_CONFIG_MAP, namespace=INTENTS_NAMESPACE) is None:
        manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": INTENTS_CONFIG_MAP}}
        cluster.ensure(manifest, namespace=INTENTS_NAMESPACE)
    # The entry is in the datastore before the volume is deleted: a kill after this point loses nothing.
    _patch_intents(cluster, {metadata(volume)["name"]: msgspec.json.encode(volume).decode()})
    return volume


def delete_intent(cluster: Objects, name: str) -> None:
    """Remove a volume from the write-ahead list, and the list with its last entry."""
    config_map = cluster.get("ConfigMap", INTENTS_CONFIG_MAP, namespace=INTENTS_NAMESPACE)
    if config_map is None:
        return
    if set(config_map.get("data") or {}) <= {name}:
        # The lock of the gateway excludes other migrations: no run adds an entry after the read above.
        uid = config_map["metadata"]["uid"]
        cluster.delete("ConfigMap", INTENTS_CONFIG_MAP, namespace=INTENTS_NAMESPACE, uid=uid)
    else:
        _patch_intents(cluster, {name: None})


def _patch_intents(cluster: Objects, data: dict[str, str | None]) -> None:
    if cluster.patch("ConfigMap", INTENTS_CONFIG_MAP, {"data": data}, namespace=INTENTS_NAMESPACE) is None:
        raise TemporaryError(f"{_INTENTS} was deleted while it was being written")


def pv_bound(obj: dict[str, Any] | None) -> WaitResult:
    """The volume is bound to its PVC; a released volume never will be."""
    phase = ((obj or {}).get("status") or {}).get("phase") or "Pending"
    if obj is None or phase in ("Released", "Failed"):
        return WaitResult(failed="its PVC does not exist" if obj is not None else "it was deleted")
    return WaitResult(done=phase == "Bound", observed=f"phase {phase}")


def pvc_bound(uid: str) -> WaitCondition:
    """The PVC with this uid is bound; it is Lost until the binder controller checks it again."""

    def until(obj: dict[str, Any] | None) -> WaitResult:
        if obj is None or metadata(obj)["uid"] != uid:
            return WaitResult(failed="it was deleted")
        phase = (obj.get("status") or {}).get("phase") or "Pending"
        return WaitResult(done=phase == "Bound", observed=f"phase {phase}")

    return until


class VolumeMigrator:
    """Migrates the volumes of a plan.

    Args:
        cluster: The cluster to change.
        hostname: The hostname label of the node to pin to.
        before_each: Called with each volume's name before it is changed; may raise to stop.
        timeout: Seconds to wait for a controller to bind a PVC or to remove a finalizer.
    """

    def __init__(
        self,
        cluster: Objects,
        hostname: str,
        before_each: Callable[[str], None] = lambda _: None,
        *,
        timeout: float,
    ) -> None:
        self._cluster = cluster
        self._hostname = hostname
        self._before_each = before_each
        self._timeout = timeout

    def run(self, plan: MigrationPlan) -> MigrationResult:
        """Finish interrupted migrations, then migrate stranded volumes; rejected ones are skipped."""
        skipped = dict(plan.skipped)
        for name in plan.unused_intents:
            delete_intent(self._cluster, name)
        # Recreate all volumes before the first wait: the binder checks lost PVCs only every 15 seconds.
        for name in plan.pending:
            self._before_each(name)
            self._attempt(name, skipped, lambda name: self._migrate_volume(name, plan))
        for name in plan.pending:
            if name not in skipped:
                self._attempt(name, skipped, self._restore_reclaim_policy)
        migrated = tuple(name for name in plan.pending if name not in skipped)
        return MigrationResult(volumes=migrated, skipped=skipped)

    @staticmethod
    def _attempt(name: str, skipped: dict[str, str], migrate: Callable[[str], str]) -> None:
        """Run one part of a migration and record the reason if the volume was skipped."""
        try:
            reason = migrate(name)
        except (ApiRequestRejectedError, ObjectConflictError) as error:
            reason = error.message
        if reason:
            skipped[name] = reason

    def _migrate_volume(self, name: str, plan: MigrationPlan) -> str:
        """Replace one volume; returns why it was skipped."""
        reason = "" if name in plan.to_restore else self._replace_volume(name, plan.intents.get(name))
        if reason or name not in plan.intents:
            return reason
        if is_stranded(self._get_volume(name) or _UNPINNED, plan.node_names):
            # The interrupted migration was to a node that no longer exists: migrate once more.
            return self._replace_volume(name, None)
        return ""

    def _replace_volume(self, name: str, intent: dict[str, Any] | None) -> str:
        for _ in range(_MAX_ACTIONS):
            # Read before each action: after a lost response or a crash, the cluster decides the next action.
            live = self._get_volume(name)
            action = next_action(intent, live)
            if action == "write-intent" and live is not None:
                intent = write_intent(self._cluster, live)
            elif action == "delete-intent":
                delete_intent(self._cluster, name)
                return ""
            elif action == "give-up":
                return f"another volume has its name; its own manifest is in {_INTENTS}"
            elif action == "create" and intent is not None:
                self._create_replacement(name, intent)
            elif action == "gone" or live is None:
                return "another client deleted it"
            else:
                self._apply_action(action, live)
        raise TemporaryError(f"volume {name}: another client keeps changing it")

    def _apply_action(self, action: MigrationAction, live: dict[str, Any]) -> None:
        name, uid = metadata(live)["name"], metadata(live)["uid"]
        if action == "retain":
            # One patch for policy and annotation: no crash can lose the policy that has to be restored.
            annotations = {RESTORE_POLICY_ANNOTATION: live["spec"]["persistentVolumeReclaimPolicy"]}
            self._set_reclaim_policy(live, RETAIN, annotations)
        elif action == "delete":
            # Under this uid only: a volume that another client created meanwhile is not deleted.
            self._cluster.delete("PersistentVolume", name, uid=uid)
        else:
            # Kubernetes keeps a volume with a bound PVC until its protection finalizer is removed.
            finalizers = other_finalizers(live)
            self._patch_volume(live, {"metadata": {"finalizers": finalizers}})
            if finalizers:
                self._cluster.wait("PersistentVolume", name, object_deleted(uid), deadline=self._timeout)

    def _create_replacement(self, name: str, intent: dict[str, Any]) -> None:
        try:
            self._cluster.ensure(replacement_volume(intent, self._hostname))
        except (ApiRequestRejectedError, ObjectConflictError) as error:
            # From here on a rejection leaves a PVC without its volume, so the step must fail.
            raise TemporaryError(
                f"volume {name}: deleted for its migration and cannot be recreated: {error.message}",
                hint=f"Its files are unchanged. Run the same command again; its manifest is in {_INTENTS}.",
            ) from error

    def _restore_reclaim_policy(self, name: str) -> str:
        """Restore the policy once the PVC is bound; earlier, a `Delete` policy would delete the files."""
        live = self._get_volume(name)
        policy = object_annotations(live or {}).get(RESTORE_POLICY_ANNOTATION)
        if live is None or policy is None:
            return ""
        is_bound = self._wait_until_bound(live)
        self._set_reclaim_policy(live, policy if is_bound else RETAIN, {RESTORE_POLICY_ANNOTATION: None})
        return "" if is_bound else "its PVC does not exist; its files are kept"

    def _set_reclaim_policy(self, live: dict[str, Any], policy: str, annotations: dict[str, Any]) -> None:
        body = {"metadata": {"annotations": annotations}, "spec": {"persistentVolumeReclaimPolicy": policy}}
        self._patch_volume(live, body)

    def _patch_volume(self, live: dict[str, Any], body: dict[str, Any]) -> None:
        """Merge a patch into this volume; no effect if it is gone or another one has its name."""
        with suppress(ObjectConflictError):
            self._cluster.patch("PersistentVolume", metadata(live)["name"], body, uid=metadata(live)["uid"])

    def _wait_until_bound(self, live: dict[str, Any]) -> bool:
        if not has_matching_pvc(self._cluster, live):
            return False
        namespace, name, uid = pvc_reference(live)
        wait = self._cluster.wait
        try:
            wait("PersistentVolume", metadata(live)["name"], pv_bound, deadline=self._timeout)
            wait("PersistentVolumeClaim", name, pvc_bound(uid), namespace=namespace, deadline=self._timeout)
        except WaitFailedError:
            return False
        return True

    def _get_volume(self, name: str) -> dict[str, Any] | None:
        return self._cluster.get("PersistentVolume", name)


class MigrateVolumes(NodesStep):
    """Pin volumes of nodes that do not exist to the gateway's node.

    No PVC and no file is changed. Volumes that cannot be migrated are reported and not changed. A failure in
    the middle fails the run, because a PVC would be without its volume; the same command resumes.
    """

    name = "repin-volumes"
    title = "Volumes"
    needs = ("remove-stale-nodes",)
    touches = ("volumes pinned to nodes that do not exist; their files are not changed",)

    def probe(self, ctx: StepContext) -> ProbeResult:
        if not self.has_cluster:
            return absent(NO_CLUSTER)
        plan, hostname = self._plan(ctx)
        if hostname is None:
            return done(f"no volume is changed: {self.node_not_listed_text()}")
        if plan.pending or plan.unused_intents:
            return partial(f"to be pinned to {hostname}: {', '.join(plan.pending or plan.unused_intents)}")
        return done(plan.describe_skipped() or "no stranded volumes")

    def run(self, ctx: StepContext) -> None:
        plan, hostname = self._plan(ctx)
        if hostname is None:
            return
        report = progress_reporter(ctx)
        migrator = VolumeMigrator(
            self.objects(ctx),
            hostname,
            lambda name: report(f"pinning {name} to {hostname}", None),
            timeout=self.gateway.settings.timeouts.objects,
        )
        ctx.note(migrator.run(plan).summary())

    def _plan(self, ctx: StepContext) -> tuple[MigrationPlan, str | None]:
        """The plan and the hostname to pin to; None while the gateway's node is not listed."""
        nodes = self.membership(ctx)
        if nodes.control_plane is None:
            return MigrationPlan(), None
        directory = f"{self.gateway.contract.state_path}/{LOCAL_PATH_DIR}"
        plan = plan_migration(
            self.objects(ctx), nodes.node_names, directory, lambda paths: self._existing_paths(ctx, paths)
        )
        return plan, nodes.control_plane.hostname

    def _existing_paths(self, ctx: StepContext, paths: Sequence[str]) -> list[str]:
        """Those of the directories that exist in the node."""
        return self.engine_call(ctx, lambda: self._query_paths(paths))

    def _query_paths(self, paths: Sequence[str]) -> list[str]:
        # The paths are arguments, never part of the script: clients of the cluster control them.
        script = 'for path; do if test -d "$path"; then echo yes; else echo no; fi; done'
        container, command = self.gateway.object_name, ["sh", "-c", script, "sh", *paths]
        result = run_in_container(self.gateway.engine, container, command)
        answers = result.output.split()
        if result.exit_code != 0 or len(answers) != len(paths):
            problem = result.output.strip() if result.exit_code else "connection broken"
            raise ContainerEngineError(f"listing volumes in {container}: {problem}")
        return [path for path, answer in zip(paths, answers, strict=True) if answer == "yes"]
