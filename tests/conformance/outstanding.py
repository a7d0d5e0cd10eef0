"""Rows of the contract that do not hold yet, and rows that other tests show."""

from __future__ import annotations

from tests.conformance.table import Need, TestedRow, UntestedRow

MISSING: dict[str, str] = {}
"""Rows that the suite runs, and that must not pass: the list becomes only shorter."""

UNTESTED = (
    UntestedRow(
        "7 replacement", "doubling batches", "members are created one after the other, up to the first error"
    ),
    UntestedRow("11 tracing", "OTLP export", "spans are not exported"),
    UntestedRow("12 flags", "of the published binary", "holdfast has options of its own"),
    UntestedRow("13 router", "X-Sandbox-UID", "Go router only: the router has no cache of pods"),
    UntestedRow(
        "13 router",
        "X-Forwarded headers, Origin of upgrades",
        "Go router only: kept as the client sends them",
    ),
    UntestedRow("13 router", "--authz-mode", "Go router only"),
    UntestedRow("13 router", "metrics and probes on other ports", "Go router only"),
    UntestedRow("14 sandboxd", "files", "sandboxd does not exist in holdfast: its REST API on port 8080"),
    UntestedRow("14 sandboxd", "processes", "sandboxd does not exist in holdfast: its gRPC API on port 9090"),
    UntestedRow("15 clients", "Python, sandboxd", "sandboxd does not exist in holdfast"),
    UntestedRow("15 clients", "Go", "no test has a Go toolchain and a gateway"),
    UntestedRow(
        "6 template", "default policy is enforced", "the node has no network plugin that enforces it"
    ),
    UntestedRow("3 errors", "failed to list or get", "the controller reads children from its watches"),
)
"""Rows that no test shows."""

_ROUTER = "tests/unit/runtime/test_sandbox_router.py"
_STREAMS = "tests/unit/runtime/test_sandbox_router_streams.py"
_EXECUTION = "tests/unit/runtime/test_execution.py"
_FILES = "tests/unit/runtime/test_workspace_files.py"
_SERVER = "tests/unit/runtime/test_http_server.py"
_CLIENT = "tests/integration/runtime/test_published_client.py"
_IMAGE = "tests/e2e/test_sandbox_image.py"
_NODE = "tests/e2e/test_controller.py"
_POOL = "tests/unit/sandbox/test_warmpool_backoff.py"
_TELEMETRY = "tests/unit/controller/test_published_metrics.py"
_RECONCILERS = "tests/unit/controller/reconcilers"
_SANDBOX = "tests/unit/sandbox/test_reconcile.py"
_EXCHANGE = "tests/integration/controller/test_controller_exchange.py"
_REFUSED = "tests/unit/controller/test_controller_refused_writes.py"
_CRDS = "tests/integration/api/test_crds.py"
_SCALE = "tests/integration/controller/test_warm_pool_scale.py"

TESTED_ELSEWHERE = (
    TestedRow(
        "1 kinds",
        "served and established",
        Need.SITUATION,
        (f"{_CRDS}::test_crds_are_accepted_without_schema_warnings",),
    ),
    TestedRow(
        "1 kinds",
        "defaults",
        Need.SITUATION,
        (
            f"{_CRDS}::test_sandbox_keeps_every_field_and_gets_defaults",
            f"{_CRDS}::test_extension_kinds_have_published_defaults",
        ),
    ),
    TestedRow(
        "1 kinds",
        "printer columns and scale",
        Need.SITUATION,
        (f"{_SCALE}::test_scale_subresource_reports_replicas_and_selector_finds_pods",),
    ),
    TestedRow(
        "1 validation",
        "fields of the specs",
        Need.SITUATION,
        (
            f"{_CRDS}::test_published_validation_has_its_exact_message",
            f"{_CRDS}::test_spec_is_required",
        ),
    ),
    TestedRow(
        "1 validation",
        "conditions",
        Need.SITUATION,
        (f"{_CRDS}::test_condition_is_validated",),
    ),
    TestedRow(
        "1 validation",
        "volumeClaimTemplates is immutable",
        Need.SITUATION,
        (f"{_CRDS}::test_volume_claim_templates_are_immutable",),
    ),
    TestedRow(
        "2 hash",
        "FNV-1a of a name",
        Need.SITUATION,
        (f"{_SANDBOX}::test_name_hash_matches_published_algorithm",),
    ),
    TestedRow(
        "3 Ready",
        "Service does not exist",
        Need.RACE,
        (f"{_SANDBOX}::test_missing_required_service_prevents_ready",),
    ),
    TestedRow(
        "4 PVC",
        "pod uses the volume",
        Need.NODE,
        (f"{_NODE}::test_workspace_survives_pod_deletion_failure_and_suspension",),
    ),
    TestedRow(
        "5 life cycle",
        "suspension and resume of a real pod",
        Need.NODE,
        (f"{_NODE}::test_workspace_survives_pod_deletion_failure_and_suspension",),
    ),
    TestedRow(
        "7 member",
        "not ready for 5 min is replaced",
        Need.TIME,
        (
            f"{_POOL}::test_sandbox_unready_after_timeout_is_replaced_and_not_adopted",
            f"{_POOL}::test_grace_counts_from_the_creation",
        ),
    ),
    TestedRow(
        "7 member", "unschedulable is held", Need.TIME, (f"{_POOL}::test_unscheduled_sandbox_is_kept",)
    ),
    TestedRow(
        "7 replacement",
        "at most 300 members at a time",
        Need.TIME,
        (f"{_POOL}::test_large_pool_is_created_in_parts",),
    ),
    TestedRow(
        "8 one pass",
        "old NetworkPolicy of a claim is deleted",
        Need.SITUATION,
        (
            "tests/unit/sandbox/claim/test_binding.py::test_network_policy_of_older_controllers_is_deleted",
            f"{_EXCHANGE}::test_nothing_is_deleted_or_created_at_the_exchange",
        ),
    ),
    TestedRow(
        "8 one pass",
        "status is written with resourceVersion",
        Need.RACE,
        (f"{_RECONCILERS}/test_claim_races.py::test_status_of_an_older_version_is_not_written",),
    ),
    TestedRow(
        "8 one pass",
        "expiry is not delayed by a rejection",
        Need.RACE,
        (f"{_REFUSED}::test_expiry_is_reported_in_time_while_writes_are_rejected",),
    ),
    TestedRow(
        "8 Ready",
        "AdoptionConflict and its details",
        Need.RACE,
        (f"{_RECONCILERS}/test_claim_adoption.py::test_lost_race_is_reported_with_its_cause",),
    ),
    TestedRow(
        "8 Ready",
        "SandboxCreatePending",
        Need.RACE,
        (f"{_REFUSED}::test_name_taken_by_invisible_object_is_retried_with_backoff",),
    ),
    TestedRow(
        "9 events",
        "WarmPoolNotProgressing",
        Need.TIME,
        (f"{_TELEMETRY}::test_held_pool_is_reported_when_it_begins_and_ends",),
    ),
    TestedRow(
        "9 events",
        "WarmPoolProgressing",
        Need.TIME,
        (f"{_TELEMETRY}::test_held_pool_is_reported_when_it_begins_and_ends",),
    ),
    TestedRow(
        "12 flags",
        "--cluster-domain",
        Need.SITUATION,
        (
            f"{_RECONCILERS}/test_sandbox_concurrent_changes.py::test_service_name_has_the_domain_of_the_cluster",
        ),
    ),
    TestedRow(
        "13 router",
        "headers",
        Need.PROGRAM,
        (
            f"{_ROUTER}::test_sandbox_is_reached_by_service_or_pod_address",
            f"{_ROUTER}::test_other_destinations_are_rejected",
            f"{_CLIENT}::test_invalid_sandbox_name",
        ),
    ),
    TestedRow(
        "13 router",
        "target and cluster domain",
        Need.PROGRAM,
        (
            f"{_ROUTER}::test_service_is_resolved_in_cluster_domain",
            f"{_ROUTER}::test_settings_of_published_router",
        ),
    ),
    TestedRow(
        "13 router",
        "healthz",
        Need.PROGRAM,
        (
            f"{_ROUTER}::test_health_endpoint_needs_no_headers",
            f"{_STREAMS}::test_idle_upgraded_connections_do_not_block_requests",
        ),
    ),
    TestedRow(
        "13 router",
        "error bodies",
        Need.PROGRAM,
        (
            f"{_ROUTER}::test_other_destinations_are_rejected",
            f"{_ROUTER}::test_unreachable_sandbox_is_reported",
            f"{_ROUTER}::test_internal_error_is_reported",
            f"{_CLIENT}::test_unreachable_sandbox",
        ),
    ),
    TestedRow(
        "13 router",
        "authentication",
        Need.PROGRAM,
        (
            f"{_ROUTER}::test_token_is_required",
            f"{_ROUTER}::test_token_or_its_absence_must_be_set",
            f"{_CLIENT}::test_token_and_refused_pod_address",
        ),
    ),
    TestedRow(
        "13 router",
        "dropped headers",
        Need.PROGRAM,
        (
            f"{_ROUTER}::test_sandbox_receives_no_headers_of_the_router_or_the_connection",
            f"{_ROUTER}::test_client_receives_no_headers_of_the_sandbox_connection",
        ),
    ),
    TestedRow(
        "13 router",
        "bodies stream both ways",
        Need.PROGRAM,
        (
            f"{_STREAMS}::test_response_arrives_while_the_sandbox_continues",
            f"{_STREAMS}::test_request_arrives_while_the_client_continues",
        ),
    ),
    TestedRow(
        "13 router",
        "WebSocket upgrades",
        Need.PROGRAM,
        (f"{_STREAMS}::test_websocket", f"{_STREAMS}::test_upgraded_connection_has_no_request_timeout"),
    ),
    TestedRow(
        "13 router",
        "timeout",
        Need.PROGRAM,
        (
            f"{_ROUTER}::test_timeout_header_is_capped",
            f"{_STREAMS}::test_silent_sandbox_times_out",
            f"{_CLIENT}::test_time_limit_of_the_router",
        ),
    ),
    TestedRow(
        "13 router",
        "dial retries",
        Need.PROGRAM,
        (
            f"{_ROUTER}::test_failed_connection_is_repeated",
            f"{_ROUTER}::test_connection_is_repeated_three_times",
        ),
    ),
    TestedRow(
        "14 runtime",
        "execute",
        Need.PROGRAM,
        (
            f"{_EXECUTION}::test_output_and_exit_code",
            f"{_EXECUTION}::test_command_runs_without_shell_in_workspace",
            f"{_EXECUTION}::test_command_that_cannot_start_has_exit_code_1",
            f"{_EXECUTION}::test_default_timeout_kills_command",
            f"{_CLIENT}::test_commands",
        ),
    ),
    TestedRow("14 runtime", "settings", Need.PROGRAM, (f"{_SERVER}::test_settings_of_published_runtime",)),
    TestedRow(
        "14 runtime",
        "upload and download",
        Need.PROGRAM,
        (
            f"{_FILES}::test_round_trip",
            f"{_FILES}::test_download_of_no_file_is_not_found",
            f"{_CLIENT}::test_files",
        ),
    ),
    TestedRow(
        "14 runtime",
        "list and exists",
        Need.PROGRAM,
        (
            f"{_FILES}::test_listing",
            f"{_FILES}::test_list_of_no_directory_is_not_found",
            f"{_FILES}::test_exists",
        ),
    ),
    TestedRow(
        "14 runtime",
        "paths outside",
        Need.PROGRAM,
        (
            f"{_FILES}::test_nothing_outside_is_read",
            f"{_FILES}::test_nothing_outside_is_written",
            f"{_CLIENT}::test_errors_of_the_runtime",
        ),
    ),
    TestedRow(
        "15 clients",
        "Python, sync",
        Need.PROGRAM,
        (f"{_IMAGE}::test_published_client_works_unmodified", f"{_CLIENT}::test_commands"),
    ),
    TestedRow(
        "15 clients",
        "Python, async",
        Need.PROGRAM,
        (f"{_IMAGE}::test_published_async_client_works_unmodified", f"{_CLIENT}::test_async_client"),
    ),
    TestedRow("15 clients", "Python, gateway mode", Need.PROGRAM, (f"{_CLIENT}::test_gateway_mode",)),
    TestedRow("15 clients", "Python, in-cluster mode", Need.PROGRAM, (f"{_CLIENT}::test_in_cluster_mode",)),
)
"""Rows that need more than an API server, or another situation, and the tests that show them."""
