"""Rows of the contract that do not hold yet, and rows that need more than an API server."""

from __future__ import annotations

MISSING: dict[str, str] = {}
"""Rows that the suite runs, and that must not pass: the list becomes only shorter."""

UNTESTED: dict[str, str] = {
    "7 replacement: doubling batches": "members are created one after the other, up to the first error",
    "3 Ready: Service does not exist": "the Service is created before the status is written",
    "11 tracing: OTLP export": "spans are not exported",
    "12 flags: of the published binary": "holdfast has options of its own",
    "13 router: X-Sandbox-UID": "Go router only: the router has no cache of pods",
    "13 router: X-Forwarded headers, Origin of upgrades": "Go router only: kept as the client sends them",
    "13 router: --authz-mode": "Go router only",
    "13 router: metrics and probes on other ports": "Go router only",
    "14 sandboxd: files": "sandboxd does not exist in holdfast: its REST API on port 8080",
    "14 sandboxd: processes": "sandboxd does not exist in holdfast: its gRPC API on port 9090",
    "15 clients: Python, sandboxd": "sandboxd does not exist in holdfast",
    "15 clients: Go": "no test has a Go toolchain and a gateway",
}
"""Rows that are not implemented and have no scenario."""

NODE_ROWS: dict[str, str] = {
    "4 PVC: pod uses the volume": "kubelet",
    "5 life cycle: grace period of a real pod": "kubelet",
    "6 template: default policy is enforced": "network plugin",
    "7 member: not ready for 5 min is replaced": "five minutes; unit test of the warm pool",
    "7 member: unschedulable is held": "scheduler; unit test of the warm pool",
    "7 replacement: at most 300 members at a time": "a large pool; unit test of the warm pool",
    "8 one pass: old NetworkPolicy of a claim is deleted": "objects of an older version; exchange test",
    "8 one pass: status is written with resourceVersion": "a race; unit test of the claim",
    "12 flags: --cluster-domain": "one controller for all rows; unit test of the controller",
    "9 events: WarmPoolNotProgressing": "five minutes; unit test of the events",
    "9 events: WarmPoolProgressing": "five minutes; unit test of the events",
    "8 one pass: DeleteForeground waits for the pod": "kubelet",
}
"""Rows that need a kubelet or a network."""

_ROUTER = "tests/unit/runtime/test_sandbox_router.py"
_STREAMS = "tests/unit/runtime/test_sandbox_router_streams.py"
_EXECUTION = "tests/unit/runtime/test_execution.py"
_FILES = "tests/unit/runtime/test_workspace_files.py"
_SERVER = "tests/unit/runtime/test_http_server.py"
_CLIENT = "tests/integration/runtime/test_published_client.py"
_IMAGE = "tests/e2e/test_sandbox_image.py"

TESTS_OF_ROWS: dict[str, tuple[str, ...]] = {
    "13 router: headers": (
        f"{_ROUTER}::test_sandbox_is_reached_by_service_or_pod_address",
        f"{_ROUTER}::test_other_destinations_are_rejected",
        f"{_CLIENT}::test_invalid_sandbox_name",
    ),
    "13 router: target and cluster domain": (
        f"{_ROUTER}::test_service_is_resolved_in_cluster_domain",
        f"{_ROUTER}::test_settings_of_published_router",
    ),
    "13 router: healthz": (
        f"{_ROUTER}::test_health_endpoint_needs_no_headers",
        f"{_STREAMS}::test_idle_upgraded_connections_do_not_block_requests",
    ),
    "13 router: error bodies": (
        f"{_ROUTER}::test_other_destinations_are_rejected",
        f"{_ROUTER}::test_unreachable_sandbox_is_reported",
        f"{_ROUTER}::test_internal_error_is_reported",
        f"{_CLIENT}::test_unreachable_sandbox",
    ),
    "13 router: authentication": (
        f"{_ROUTER}::test_token_is_required",
        f"{_ROUTER}::test_token_or_its_absence_must_be_set",
        f"{_CLIENT}::test_token_and_refused_pod_address",
    ),
    "13 router: dropped headers": (
        f"{_ROUTER}::test_sandbox_receives_no_headers_of_the_router_or_the_connection",
        f"{_ROUTER}::test_client_receives_no_headers_of_the_sandbox_connection",
    ),
    "13 router: bodies stream both ways": (
        f"{_STREAMS}::test_response_arrives_while_the_sandbox_continues",
        f"{_STREAMS}::test_request_arrives_while_the_client_continues",
    ),
    "13 router: WebSocket upgrades": (
        f"{_STREAMS}::test_websocket",
        f"{_STREAMS}::test_upgraded_connection_has_no_request_timeout",
    ),
    "13 router: timeout": (
        f"{_ROUTER}::test_timeout_header_is_capped",
        f"{_STREAMS}::test_silent_sandbox_times_out",
        f"{_CLIENT}::test_time_limit_of_the_router",
    ),
    "13 router: dial retries": (
        f"{_ROUTER}::test_failed_connection_is_repeated",
        f"{_ROUTER}::test_connection_is_repeated_three_times",
    ),
    "14 runtime: execute": (
        f"{_EXECUTION}::test_output_and_exit_code",
        f"{_EXECUTION}::test_command_runs_without_shell_in_workspace",
        f"{_EXECUTION}::test_command_that_cannot_start_has_exit_code_1",
        f"{_EXECUTION}::test_default_timeout_kills_command",
        f"{_CLIENT}::test_commands",
    ),
    "14 runtime: settings": (f"{_SERVER}::test_settings_of_published_runtime",),
    "14 runtime: upload and download": (
        f"{_FILES}::test_round_trip",
        f"{_FILES}::test_download_of_no_file_is_not_found",
        f"{_CLIENT}::test_files",
    ),
    "14 runtime: list and exists": (
        f"{_FILES}::test_listing",
        f"{_FILES}::test_list_of_no_directory_is_not_found",
        f"{_FILES}::test_exists",
    ),
    "14 runtime: paths outside": (
        f"{_FILES}::test_nothing_outside_is_read",
        f"{_FILES}::test_nothing_outside_is_written",
        f"{_CLIENT}::test_errors_of_the_runtime",
    ),
    "15 clients: Python, sync": (
        f"{_IMAGE}::test_published_client_works_unmodified",
        f"{_CLIENT}::test_commands",
    ),
    "15 clients: Python, async": (
        f"{_IMAGE}::test_published_async_client_works_unmodified",
        f"{_CLIENT}::test_async_client",
    ),
    "15 clients: Python, gateway mode": (f"{_CLIENT}::test_gateway_mode",),
    "15 clients: Python, in-cluster mode": (f"{_CLIENT}::test_in_cluster_mode",),
}
"""Rows of programs other than the controller, and the tests that show them."""
