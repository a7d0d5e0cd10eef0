"""One API server and one controller for all rows, and the counts of the rows."""

from __future__ import annotations

from collections import Counter

import pytest
from tests.conformance import (  # noqa: F401 (register)
    scenarios_claims,
    scenarios_errors,
    scenarios_pools,
    scenarios_sandboxes,
)
from tests.conformance.table import SECTIONS, Row
from tests.conformance.world import ImpatientNamespace, World
from tests.support.controller_process import ControllerProcess, FakeKubelet, install_crds

from holdfast.kube import Objects, api_client
from holdfast.testing.apiserver import KubeServer


@pytest.fixture(scope="session")
def world(tmp_path_factory, request):
    with KubeServer(controllers=True) as server, api_client(server.kubeconfig) as api:
        install_crds(api)
        plain, running = (ImpatientNamespace(Objects(api), server.create_namespace()) for _ in range(2))
        log = tmp_path_factory.mktemp("controller") / "log"
        process = ControllerProcess(server.kubeconfig, plain.namespace, log, all_namespaces=True)
        process.start()
        with FakeKubelet(server.kubeconfig, running.namespace):
            world = World(plain, running, server)
            world.metrics = lambda: process.http_get("/metrics")
            calls = [item.callspec.params for item in request.session.items if hasattr(item, "callspec")]
            rows = [params["row"] for params in calls if isinstance(params.get("row"), Row)]
            world.start(list(dict.fromkeys(row.scenario for row in rows)))
            yield world
        assert process.stop() == 0, process.log()


def pytest_terminal_summary(terminalreporter):
    """Print how many rows each section has, how many passed, and how many other tests show."""
    from tests.conformance.outstanding import TESTED_ELSEWHERE, UNTESTED
    from tests.conformance.test_rows import ROWS

    ends = (report.nodeid for report in terminalreporter.stats.get("passed", ()) if report.when == "call")
    passed_names = {end.partition("test_row_holds[")[2].removesuffix("]") for end in ends}
    passed = Counter(row.section for row in ROWS if row.name in passed_names)
    here, elsewhere, untested = (
        Counter(row.section for row in rows) for rows in (ROWS, TESTED_ELSEWHERE, UNTESTED)
    )
    terminalreporter.section("rows of the published sandbox API")
    terminalreporter.write_line(f"{'section':24} rows  passed  other tests  not tested")
    for section in SECTIONS:
        rows = here[section] + elsewhere[section] + untested[section]
        terminalreporter.write_line(
            f"{section:24} {rows:4}  {passed[section]:6}  {elsewhere[section]:11}  {untested[section]:10}"
        )
    total, needs = here + elsewhere + untested, Counter(row.need.value for row in TESTED_ELSEWHERE)
    terminalreporter.write_line(
        f"{total.total()} rows: {passed.total()} of {here.total()} passed here, {elsewhere.total()} have "
        f"other tests ({', '.join(f'{count} need {need}' for need, count in needs.items())}), "
        f"{untested.total()} are not tested"
    )
