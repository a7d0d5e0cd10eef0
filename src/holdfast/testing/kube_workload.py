"""Mixed calls to an API server whose reported outcomes are held against what the server really has.

Each worker keeps a `Ledger`: for every object the values that it may have, given what the client under test
reported. A call that reported success leaves one value, one that said "not done" the old one, one that said
"unknown" both. In the end `audit` compares all ledgers with the server: whatever is there and should not be,
is missing, is there twice or has another value was a lie of the client.
Not here: the client, the faults, and judging errors: `Claim` is what the caller makes of one.
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from holdfast.testing.kube_server import KubeServer

Verb: TypeAlias = Literal["create", "generate", "read", "patch", "delete"]
# What the error of a call says about its effect; `absent` is the right answer for what does not exist.
Claim: TypeAlias = Literal["not done", "unknown", "absent"]
State: TypeAlias = int | None

LABEL = "holdfast.dev/workload-key"


class Call(NamedTuple):
    """One call to make; `name` is None where the server or the client is to generate it."""

    verb: Verb
    key: str
    name: str | None
    value: int


Judge: TypeAlias = "Callable[[Call, Exception], tuple[Claim, str]]"


class Ledger:
    """What one worker knows of its objects; nobody else touches them."""

    def __init__(self, worker: str, seed: int) -> None:
        self._worker = worker
        self._random = random.Random(f"{seed}/{worker}")  # noqa: S311 - repeatable on purpose
        self._made = 0
        self.possible: dict[str, frozenset[State]] = {}
        self._names: dict[str, str] = {}
        self._live: list[str] = []
        self._gone: list[str] = []
        self.lies: list[str] = []
        self.outcomes: Counter[str] = Counter()
        self.slowest = 0.0

    def draw(self) -> Call:
        """The next call: something new, or something with an object whose state is certain."""
        verb = self._random.choices(("create", "generate", "read", "patch", "delete"), (25, 5, 30, 22, 18))[0]
        if verb in {"create", "generate"} or not self._live:
            self._made += 1
            key = f"{self._worker}-{self._made}"
            self.possible[key] = frozenset({None})
            return Call("generate" if verb == "generate" else "create", key, None, 0)
        if verb == "read" and self._gone and self._random.random() < 0.1:  # noqa: PLR2004
            key = self._random.choice(self._gone)
            return Call("read", key, self._names[key], 0)
        key = self._random.choice(self._live)
        value = self._certain(key) + 1 if verb == "patch" else 0
        return Call(verb, key, self._names[key], value)  # type: ignore[arg-type]

    def _certain(self, key: str) -> int:
        (value,) = self.possible[key]
        return -1 if value is None else value

    def settle(self, call: Call, outcome: Any, judge: Judge, seconds: float) -> None:
        """Enter what a call came to: its result, or the error it raised."""
        self.slowest = max(self.slowest, seconds)
        if isinstance(outcome, Exception):
            self._failed(call, *judge(call, outcome))
        else:
            self._succeeded(call, outcome)

    def _succeeded(self, call: Call, result: Any) -> None:
        self.outcomes["done"] += 1
        match call.verb:
            case "create" | "generate":
                self._names[call.key] = result.metadata.name
                self._live.append(call.key)
                self.possible[call.key] = frozenset({call.value})
            case "patch":
                self.possible[call.key] = frozenset({call.value})
            case "delete":
                self._live.remove(call.key)
                self._gone.append(call.key)
                self.possible[call.key] = frozenset({None})
            case "read":
                self._seen(call.key, int(result.data["value"]))

    def _failed(self, call: Call, claim: Claim, why: str) -> None:
        if claim == "absent" and call.verb == "read":
            self.outcomes["done"] += 1
            self._seen(call.key, None)
            return
        self.outcomes[f"{claim} ({why})" if why else claim] += 1
        if call.verb == "read":
            return
        if claim == "unknown":
            after = None if call.verb == "delete" else call.value
            self.possible[call.key] |= {after}
        if call.key in self._live:
            self._live.remove(call.key)  # left alone from here on, so that the audit sees what this call did

    def _seen(self, key: str, value: State) -> None:
        if value not in self.possible[key]:
            self.lies.append(f"{key}: read {value}, believed {sorted(self.possible[key], key=str)}")


def perform(api: Any, namespace: str, call: Call) -> Any:
    """Make one call with a CoreV1Api, bare or wrapped; of an asynchronous one, the coroutine."""
    match call.verb:
        case "create" | "generate":
            labels = {"labels": {LABEL: call.key}}
            named = {"generateName": "gen-"} if call.verb == "generate" else {"name": f"obj-{call.key}"}
            body = {"metadata": {**labels, **named}, "data": {"value": str(call.value)}}
            return api.create_namespaced_config_map(namespace, body)
        case "read":
            return api.read_namespaced_config_map(call.name, namespace)
        case "patch":
            change = {"data": {"value": str(call.value)}}
            return api.patch_namespaced_config_map(call.name, namespace, change)
        case "delete":
            return api.delete_namespaced_config_map(call.name, namespace)


class Report(NamedTuple):
    """How a run went."""

    calls: int
    seconds: float
    slowest: float
    outcomes: Counter[str]
    lies: list[str]
    stuck: int

    def __str__(self) -> str:
        outcomes = ", ".join(f"{name} {count}" for name, count in self.outcomes.most_common())
        rate = self.calls / self.seconds
        return (
            f"{self.calls} calls in {self.seconds:.1f} s ({rate:.0f}/s, slowest {self.slowest:.2f} s): "
            f"{outcomes}; {len(self.lies)} untrue, {self.stuck} stuck"
        )


def run_threads(
    api: Any,
    namespace: str,
    judge: Judge,
    *,
    calls: int,
    workers: int = 16,
    seed: int = 0,
    patience: float = 600,
) -> tuple[list[Ledger], float, int]:
    """That many calls from that many threads; the ledgers, the seconds and how many threads are stuck."""
    ledgers = [Ledger(f"w{number}", seed) for number in range(workers)]

    def work(ledger: Ledger, share: int) -> None:
        for _ in range(share):
            call = ledger.draw()
            began = time.monotonic()
            try:
                outcome = perform(api, namespace, call)
            except Exception as error:  # noqa: BLE001 - whatever the client raises is judged
                outcome = error
            ledger.settle(call, outcome, judge, time.monotonic() - began)

    threads = [
        threading.Thread(target=work, args=(ledger, share), daemon=True)
        for ledger, share in zip(ledgers, _shares(calls, workers), strict=True)
    ]
    began = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, began + patience - time.monotonic()))
    return ledgers, time.monotonic() - began, sum(thread.is_alive() for thread in threads)


async def run_tasks(
    api: Any,
    namespace: str,
    judge: Judge,
    *,
    calls: int,
    workers: int = 16,
    seed: int = 0,
    patience: float = 600,
) -> tuple[list[Ledger], float, int]:
    """The same from tasks of one event loop."""
    ledgers = [Ledger(f"t{number}", seed) for number in range(workers)]

    async def work(ledger: Ledger, share: int) -> None:
        for _ in range(share):
            call = ledger.draw()
            began = time.monotonic()
            try:
                outcome = await perform(api, namespace, call)
            except Exception as error:  # noqa: BLE001 - whatever the client raises is judged
                outcome = error
            ledger.settle(call, outcome, judge, time.monotonic() - began)

    began = time.monotonic()
    shares = zip(ledgers, _shares(calls, workers), strict=True)
    tasks = [asyncio.ensure_future(work(ledger, share)) for ledger, share in shares]
    done, stuck = await asyncio.wait(tasks, timeout=patience)
    for task in stuck:
        task.cancel()
    for task in done:
        task.result()
    return ledgers, time.monotonic() - began, len(stuck)


def _shares(calls: int, workers: int) -> list[int]:
    return [calls // workers + (number < calls % workers) for number in range(workers)]


def audit(server: KubeServer, namespace: str, run: tuple[Iterable[Ledger], float, int]) -> Report:
    """Hold what was reported against the server, asked directly and not through the client under test."""
    ledgers, seconds, stuck = run
    _, listed = server.request("GET", f"/api/v1/namespaces/{namespace}/configmaps")
    present: dict[str, list[int]] = {}
    for item in listed["items"]:
        key = item["metadata"].get("labels", {}).get(LABEL)
        if key is not None:
            present.setdefault(key, []).append(int(item["data"]["value"]))
    lies: list[str] = []
    outcomes: Counter[str] = Counter()
    for ledger in ledgers:
        outcomes += ledger.outcomes
        lies += ledger.lies
        for key, possible in ledger.possible.items():
            found = present.pop(key, [])
            if len(found) > 1:
                lies.append(f"{key}: exists {len(found)} times")
            elif (found[0] if found else None) not in possible:
                lies.append(f"{key}: the server has {found}, believed {sorted(possible, key=str)}")
    lies += [f"{key}: exists, and nobody knows of it" for key in present]
    slowest = max(ledger.slowest for ledger in ledgers)
    return Report(outcomes.total(), seconds, slowest, outcomes, lies, stuck)
