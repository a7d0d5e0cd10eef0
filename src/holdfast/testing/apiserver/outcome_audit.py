"""Mixed calls to an API server, whose reported outcomes are compared with the server's state.

Each worker keeps a `Ledger` with the values that each object may have, given what the client under test
reported. Success leaves one value, "not done" the old one, "unknown" both. `audit` then compares all ledgers
with the server: an extra, missing, duplicate or different object is a mismatch. The caller classifies errors
as a `ReportedOutcome`.
"""

from __future__ import annotations

import asyncio
import inspect
import random
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from holdfast.kube import run_sync

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable

    from holdfast.testing.apiserver.kube_server import KubeServer

CallVerb: TypeAlias = Literal["create", "generate", "read", "patch", "delete"]
# What an error says about the effect of a call; `absent` is correct for a missing object.
ReportedOutcome: TypeAlias = Literal["not done", "unknown", "absent"]
ObjectValue: TypeAlias = int | None

WORKLOAD_LABEL = "holdfast.dev/workload-key"
STUCK_AFTER_SECONDS = 600.0


class WorkloadCall(NamedTuple):
    """One call; `name` is None if the server or the client generates it."""

    verb: CallVerb
    key: str
    name: str | None
    value: int


ErrorClassifier: TypeAlias = "Callable[[WorkloadCall, Exception], tuple[ReportedOutcome, str]]"


class Ledger:
    """The objects of one worker; no other worker uses them."""

    def __init__(self, worker: str, seed: int) -> None:
        self._worker = worker
        self._random = random.Random(f"{seed}/{worker}")  # noqa: S311 - repeatable on purpose
        self._created = 0
        self.possible_values: dict[str, frozenset[ObjectValue]] = {}
        self._names: dict[str, str] = {}
        self._live: list[str] = []
        self._gone: list[str] = []
        self.mismatches: list[str] = []
        self.outcomes: Counter[str] = Counter()
        self.slowest_seconds = 0.0

    def next_call(self) -> WorkloadCall:
        """Return the next call: a new object, or one whose state is known."""
        verb = self._random.choices(("create", "generate", "read", "patch", "delete"), (25, 5, 30, 22, 18))[0]
        if verb in {"create", "generate"} or not self._live:
            self._created += 1
            key = f"{self._worker}-{self._created}"
            self.possible_values[key] = frozenset({None})
            return WorkloadCall("generate" if verb == "generate" else "create", key, None, 0)
        if verb == "read" and self._gone and self._random.random() < 0.1:  # noqa: PLR2004
            key = self._random.choice(self._gone)
            return WorkloadCall("read", key, self._names[key], 0)
        key = self._random.choice(self._live)
        value = self._known_value(key) + 1 if verb == "patch" else 0
        return WorkloadCall(verb, key, self._names[key], value)  # type: ignore[arg-type]

    def _known_value(self, key: str) -> int:
        (value,) = self.possible_values[key]
        return -1 if value is None else value

    def record(
        self, call: WorkloadCall, outcome: Any, classify_error: ErrorClassifier, seconds: float
    ) -> None:
        """Record the result of a call, or the error that it raised."""
        self.slowest_seconds = max(self.slowest_seconds, seconds)
        if isinstance(outcome, Exception):
            self._record_failure(call, *classify_error(call, outcome))
        else:
            self._record_success(call, outcome)

    def _record_success(self, call: WorkloadCall, result: Any) -> None:
        self.outcomes["done"] += 1
        match call.verb:
            case "create" | "generate":
                self._names[call.key] = result.metadata.name
                self._live.append(call.key)
                self.possible_values[call.key] = frozenset({call.value})
            case "patch":
                self.possible_values[call.key] = frozenset({call.value})
            case "delete":
                self._live.remove(call.key)
                self._gone.append(call.key)
                self.possible_values[call.key] = frozenset({None})
            case "read":
                self._check_read(call.key, int(result.data["value"]))

    def _record_failure(self, call: WorkloadCall, reported: ReportedOutcome, reason: str) -> None:
        if reported == "absent" and call.verb == "read":
            self.outcomes["done"] += 1
            self._check_read(call.key, None)
            return
        self.outcomes[f"{reported} ({reason})" if reason else reported] += 1
        if call.verb == "read":
            return
        if reported == "unknown":
            self.possible_values[call.key] |= {None if call.verb == "delete" else call.value}
        if call.key in self._live:
            self._live.remove(call.key)  # not used again, so that the audit sees the effect of this call

    def _check_read(self, key: str, value: ObjectValue) -> None:
        if value not in self.possible_values[key]:
            self.mismatches.append(
                f"{key}: read {value}, believed {sorted(self.possible_values[key], key=str)}"
            )


def perform_call(api: Any, namespace: str, call: WorkloadCall) -> Any:
    """Make one call with a CoreV1Api, plain or wrapped; an asynchronous one returns a coroutine."""
    match call.verb:
        case "create" | "generate":
            labels = {"labels": {WORKLOAD_LABEL: call.key}}
            named = {"generateName": "gen-"} if call.verb == "generate" else {"name": f"obj-{call.key}"}
            body = {"metadata": {**labels, **named}, "data": {"value": str(call.value)}}
            return api.create_namespaced_config_map(namespace, body)
        case "read":
            return api.read_namespaced_config_map(call.name, namespace)
        case "patch":
            return api.patch_namespaced_config_map(call.name, namespace, {"data": {"value": str(call.value)}})
        case "delete":
            return api.delete_namespaced_config_map(call.name, namespace)


class WorkloadReport(NamedTuple):
    """Result of a workload."""

    calls: int
    seconds: float
    slowest_seconds: float
    outcomes: Counter[str]
    mismatches: list[str]
    stuck: int

    def __str__(self) -> str:
        outcomes = ", ".join(f"{name} {count}" for name, count in self.outcomes.most_common())
        rate = self.calls / self.seconds
        return (
            f"{self.calls} calls in {self.seconds:.1f} s ({rate:.0f}/s, "
            f"slowest {self.slowest_seconds:.2f} s): {outcomes}; "
            f"{len(self.mismatches)} mismatches, {self.stuck} stuck"
        )


def run_threads(
    api: Any,
    namespace: str,
    classify_error: ErrorClassifier,
    *,
    calls: int,
    workers: int = 16,
    seed: int = 0,
) -> tuple[list[Ledger], float, int]:
    """Make calls from threads; those that have not ended after `STUCK_AFTER_SECONDS` count as stuck.

    Args:
        api: A CoreV1Api, or a client with its methods.
        namespace: The namespace of the objects.
        classify_error: Returns what an error says about the effect of a call, and a reason.
        calls: Number of calls of all workers.
        workers: Number of threads.
        seed: Seed of the calls.

    Returns:
        The ledgers, the seconds and the number of stuck threads.
    """
    ledgers = [Ledger(f"w{number}", seed) for number in range(workers)]
    work = _divide_calls(calls, ledgers, api, namespace, classify_error)
    # Daemon threads: a stuck one must not keep the test process from ending.
    threads = [threading.Thread(target=run_sync, args=(part,), daemon=True) for part in work]
    started = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, started + STUCK_AFTER_SECONDS - time.monotonic()))
    return ledgers, time.monotonic() - started, sum(thread.is_alive() for thread in threads)


async def run_tasks(
    api: Any,
    namespace: str,
    classify_error: ErrorClassifier,
    *,
    calls: int,
    workers: int = 16,
    seed: int = 0,
) -> tuple[list[Ledger], float, int]:
    """Make calls from tasks of one event loop, with an asynchronous client; otherwise as `run_threads`."""
    ledgers = [Ledger(f"t{number}", seed) for number in range(workers)]
    started = time.monotonic()
    work = _divide_calls(calls, ledgers, api, namespace, classify_error)
    tasks = [asyncio.ensure_future(part) for part in work]
    done, stuck = await asyncio.wait(tasks, timeout=STUCK_AFTER_SECONDS)
    for task in stuck:
        task.cancel()
    for task in done:
        task.result()
    return ledgers, time.monotonic() - started, len(stuck)


def _divide_calls(calls: int, ledgers: list[Ledger], *client: Any) -> list[Coroutine[Any, Any, None]]:
    share, rest = divmod(calls, len(ledgers))
    return [_make_calls(ledger, share + (number < rest), *client) for number, ledger in enumerate(ledgers)]


async def _make_calls(
    ledger: Ledger, count: int, api: Any, namespace: str, classify_error: ErrorClassifier
) -> None:
    """Make the calls of one worker; with a sync client it never suspends."""
    for _ in range(count):
        call = ledger.next_call()
        started = time.monotonic()
        try:
            outcome = perform_call(api, namespace, call)
            if inspect.isawaitable(outcome):
                outcome = await outcome
        except Exception as error:  # noqa: BLE001 - whatever the client raises is judged
            outcome = error
        ledger.record(call, outcome, classify_error, time.monotonic() - started)


def audit(server: KubeServer, namespace: str, result: tuple[Iterable[Ledger], float, int]) -> WorkloadReport:
    """Compare the ledgers with the server, which is read directly and not through the client under test."""
    ledgers, seconds, stuck = result
    _, listed = server.request("GET", f"/api/v1/namespaces/{namespace}/configmaps")
    present: dict[str, list[int]] = {}
    for item in listed["items"]:
        key = item["metadata"].get("labels", {}).get(WORKLOAD_LABEL)
        if key is not None:
            present.setdefault(key, []).append(int(item["data"]["value"]))
    mismatches: list[str] = []
    outcomes: Counter[str] = Counter()
    for ledger in ledgers:
        outcomes += ledger.outcomes
        mismatches += ledger.mismatches
        for key, possible in ledger.possible_values.items():
            values = present.pop(key, [])
            if len(values) > 1:
                mismatches.append(f"{key}: exists {len(values)} times")
            elif (values[0] if values else None) not in possible:
                mismatches.append(f"{key}: the server has {values}, expected {sorted(possible, key=str)}")
    mismatches += [f"{key}: exists, but no ledger has it" for key in present]
    slowest = max(ledger.slowest_seconds for ledger in ledgers)
    return WorkloadReport(outcomes.total(), seconds, slowest, outcomes, mismatches, stuck)
