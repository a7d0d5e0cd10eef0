"""Templates and warm pools from Python and the command line, with the real server and controller."""

import asyncio
import json
import threading
import uuid

import pytest
from tests.support.controller_process import API_VERSIONS
from tests.support.hints import execute_hint

from holdfast.errors import (
    ObjectConflictError,
    PoolNotFoundError,
    TemplateNotFoundError,
    UsageError,
    WaitFailedError,
)
from holdfast.kube import Objects, api_client

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(180)]

TIMEOUT = 90


@pytest.fixture
def sandboxes(source):
    """The sandboxes of the gateway. No garbage collector deletes those of SandboxClaims and pools here."""
    with source.gateway.sandboxes() as found:
        yield found
    with api_client(source.kubeconfig) as api:
        objects = Objects(api)
        for kind in ("SandboxClaim", "Sandbox"):
            where = {"namespace": source.namespace, "api_version": API_VERSIONS[kind]}
            for each in objects.list(kind, **where).items:
                objects.delete(kind, each["metadata"]["name"], **where)


@pytest.fixture
def templates(source, sandboxes):
    with source.gateway.templates() as found:
        yield found
        for view in list(found):
            found.delete(view.name)


@pytest.fixture
def pools(source, templates):
    with source.gateway.pools() as found:
        yield found
        for view in list(found):
            found.delete(view.name)


@pytest.fixture
def name():
    # A new name for each test: no garbage collector removes the sandboxes of deleted pools here.
    return f"t-{uuid.uuid4().hex[:6]}"


@pytest.fixture
def template(templates, name):
    templates.create(name, "app:1", workspace=False)
    return name


@pytest.fixture
def pool(pools, template):
    pools.create(template, template, size=1)
    pools.wait(template, timeout=TIMEOUT)
    return template


def test_sandbox_comes_from_the_pool_which_is_refilled(sandboxes, pools, template, name):
    assert pools.create(name, template=template, size=2).phase == "Pending"
    assert pools.is_new
    seen = []
    view = pools.wait(name, timeout=TIMEOUT, on_change=seen.append)
    assert (view.phase, view.size, view.ready, view.available) == ("Ready", 2, 2, 2)
    assert seen[-1] == view
    box = sandboxes.create(f"{name}-box", template=template)
    shown = box.wait(timeout=TIMEOUT)
    assert shown.pod.startswith(f"{name}-")
    assert shown.pod != f"{name}-box"
    assert pools.wait(name, timeout=TIMEOUT).ready == 2
    assert pools.get(name).sandboxes == [f"{name}-box"]
    deleted = pools.delete(name)
    assert (deleted.deleted, deleted.sandboxes) == (True, [f"{name}-box"])
    assert box.get().phase == "Ready"
    with pytest.raises(PoolNotFoundError):
        pools.get(name)


def test_asynchronous_clients_do_the_same(source, sandboxes, name):
    async def run():
        async with source.gateway.templates() as templates, source.gateway.pools() as pools:
            assert (await templates.create(name, "app:1", workspace=False)).image == "app:1"
            assert templates.is_new
            await pools.create(name, name, size=1)
            view = await pools.wait(name, timeout=TIMEOUT)
            scaled = await pools.scale(name, 2)
            waited = await pools.wait(name, timeout=TIMEOUT)
            names = [each.name async for each in pools], [each.name async for each in templates]
            deleted = await pools.delete(name), await templates.delete(name)
            return view.ready, scaled.size, waited.ready, names, [each.deleted for each in deleted]

    assert asyncio.run(run()) == (1, 2, 2, ([name], [name]), [True, True])


def test_pool_of_size_zero_starts_sandboxes_on_demand(sandboxes, pools, template, name):
    pools.create(name, template, size=0)
    assert pools.wait(name, timeout=TIMEOUT).phase == "Ready"
    box = sandboxes.create(f"{name}-box", template=template)
    assert box.wait(timeout=TIMEOUT).pod == f"{name}-box"


def test_variables_of_a_request_replace_those_of_the_template(source, sandboxes, templates, pools, name):
    templates.create(name, "app:1", workspace=False, env={"A": "1", "B": "1"})
    pools.create(name, name, size=1)
    pools.wait(name, timeout=TIMEOUT)
    box = sandboxes.create(f"{name}-box", template=name, env={"A": "2"})
    box.wait(timeout=TIMEOUT)
    with api_client(source.kubeconfig) as api:
        pod = Objects(api).get("Pod", f"{name}-box", namespace=source.namespace)
    variables = {each["name"]: each.get("value") for each in pod["spec"]["containers"][0]["env"]}
    assert (variables["A"], variables["B"]) == ("2", "1")


def test_scale_changes_the_number_of_waiting_sandboxes(pools, pool):
    assert pools.scale(pool, 3).size == 3
    assert pools.wait(pool, timeout=TIMEOUT).ready == 3
    pools.scale(pool, 1)
    seen = []
    for view in pools.watch(pool):
        seen.append(view)
        if (view.available, view.ready) == (1, 1):
            break
    assert seen[-1].size == 1


def test_wait_follows_a_pool_that_another_client_deletes(pools, template, name):
    pools.create(name, template, size=0)
    pools.scale(name, 0)
    outcome = []

    def follow():
        outcome.extend(view.phase for view in pools.watch(name))

    thread = threading.Thread(target=follow)
    thread.start()
    pools.delete(name)
    thread.join(30)
    assert (thread.is_alive(), outcome[-1]) == (False, "Deleting")


def test_repeated_and_different_requests(pools, templates, pool):
    templates.create(pool, "app:1", workspace=False)
    assert not templates.is_new
    pools.create(pool, pool, size=1)
    assert not pools.is_new
    with pytest.raises(ObjectConflictError, match="image is app:1, requested is app:2"):
        templates.create(pool, "app:2", workspace=False)
    with pytest.raises(ObjectConflictError, match="size is 1, requested is 2"):
        pools.create(pool, pool, size=2)


def test_missing_template_ends_a_wait(pools, templates, pool):
    assert templates.delete(pool).pools == [pool]
    with pytest.raises(WaitFailedError, match=f"template {pool} does not exist"):
        pools.wait(pool, timeout=TIMEOUT)
    with pytest.raises(TemplateNotFoundError):
        templates.get(pool)
    with pytest.raises(UsageError, match="not found"):
        pools.create("other", pool)


# The command line


@pytest.fixture
def failed(source, pools):
    """Run a command, which must fail; return its error output."""

    def run(*words):
        ended = source.holdfast.run(*words)
        assert ended.returncode, ended.stdout
        return ended.stderr

    return run


def test_commands_create_show_scale_and_delete(source, pools, name):
    holdfast = source.holdfast
    created = holdfast("template", "create", name, "--image", "app:1", "--no-workspace", "-e", "A=s3cr3t")
    assert created.splitlines() == [
        f"Template {name} is created.", f"holdfast pool create {name} --template {name}",
    ]  # fmt: skip
    again = holdfast("template", "create", name, "--image", "app:1", "--no-workspace", "-e", "A=s3cr3t")
    assert again == f"Template {name} exists with the same options.\n"
    ready = holdfast("pool", "create", name, "--template", name, "--size", "2")
    assert ready.splitlines()[0] == f"Pool {name} is ready: 2 of 2 sandboxes are ready."
    assert f"holdfast sandbox create work --template {name}" in ready
    assert holdfast("pool", "list").splitlines()[1].split()[:4] == [name, name, "2/2", "2"]
    assert holdfast("template", "list").splitlines()[1].split()[:2] == [name, "app:1"]
    assert "s3cr3t" not in holdfast("template", "get", name) + holdfast("template", "get", name, "--json")
    holdfast("sandbox", "create", f"{name}-box", "--template", name)
    assert f"sandboxes: {name}-box" in holdfast("pool", "get", name)
    assert "3 of 3" in holdfast("pool", "scale", name, "3")
    assert holdfast.json("pool", "wait", name)["ready"] == 3
    deleted = holdfast("pool", "delete", name, "--yes")
    assert deleted.startswith(f"Pool {name} and its waiting sandboxes are deleted. ")
    assert deleted.endswith(f"Sandboxes that came from it stay: {name}-box.\n")
    assert holdfast("template", "delete", name, "--yes") == f"Template {name} is deleted.\n"
    assert holdfast.json("pool", "delete", name, "--ignore-missing") == {"deleted": False, "sandboxes": []}
    assert holdfast.json("template", "delete", name, "--ignore-missing") == {"deleted": False, "pools": []}
    assert holdfast.json("pool", "list") == {"pools": []}


def test_deletion_has_to_be_confirmed(source, failed, sandboxes, pools, pool):
    sandboxes.create(f"{pool}-box", template=pool).wait(timeout=TIMEOUT)
    printed = failed("pool", "delete", pool)
    assert f"the sandboxes {pool}-box stay" in printed
    assert "nothing was changed" in printed
    assert f"pool {pool} keeps the waiting sandboxes, but cannot create more" in failed(
        "template", "delete", pool
    )
    assert pools.get(pool).template == pool


def test_template_without_pool_names_the_command_that_creates_one(source, failed, template, name):
    words = ("sandbox", "create", f"{name}-box", "--template", template)
    execute_hint(
        source.holdfast,
        failed(*words),
        "Run `holdfast pool create {} --template {}`, then run the same command again.",
    )
    assert source.holdfast.json(*words)["phase"] == "Ready"


def test_hint_names_the_chosen_gateway(source, failed, template, name):
    printed = failed("sandbox", "create", f"{name}-box", "--template", template, "-g", source.name)
    assert f"`holdfast pool create --gateway {source.name} {template} --template {template}`" in printed


def test_unknown_template_names_the_existing_ones(source, failed, templates, template, name):
    for words in (("pool", "create", name), ("sandbox", "create", f"{name}-box")):
        printed = failed(*words, "--template", f"{name}-x")
        assert f"template {name}-x: not found; the templates are {template}" in printed
    execute_hint(
        source.holdfast,
        printed,
        "Name an existing template, or run `holdfast template create {}` to create it.",
    )
    assert templates.get(f"{name}-x").name == f"{name}-x"


@pytest.mark.parametrize("command", ["get", "delete"])
def test_unknown_template_names_list(source, failed, template, command):
    printed = failed("template", command, "ghost")
    listed = execute_hint(source.holdfast, printed, "Run `holdfast template list` to list all templates.")
    assert template in listed


@pytest.mark.parametrize(
    "words", [("get", "ghost"), ("scale", "ghost", "1"), ("wait", "ghost")], ids=" ".join
)
def test_unknown_pool_names_list(source, failed, pool, words):
    printed = failed("pool", *words)
    assert pool in execute_hint(source.holdfast, printed, "Run `holdfast pool list` to list all pools.")


def test_pool_of_another_size_names_scale(source, failed, pools, pool):
    printed = failed("pool", "create", pool, "--template", pool, "--size", "2")
    execute_hint(source.holdfast, printed, "Run `holdfast pool scale {} {}` to change its size.")
    assert pools.get(pool).size == 2


def test_pool_without_template_names_the_command_that_creates_it(source, failed, templates, pools, pool):
    templates.delete(pool)
    execute_hint(
        source.holdfast,
        failed("pool", "wait", pool),
        "Run `holdfast template create {}`: the pool then creates its sandboxes.",
    )
    assert pools.wait(pool, timeout=TIMEOUT).phase == "Ready"


def test_wait_that_takes_too_long(source, failed, pools, template, name):
    pools.create(name, template, size=1)
    execute_hint(
        source.holdfast,
        failed("pool", "wait", name, "--timeout", "0.001"),
        "Run `holdfast pool get {}` to see its state, or `holdfast pool wait {}` to keep waiting.",
    )


def test_sandbox_that_cannot_start_ends_the_wait_with_its_reason(source, failed, pools, pool):
    waiting = {"reason": "CrashLoopBackOff", "message": "back-off 10s"}
    container = {"name": "sandbox", "image": "app:1", "imageID": "i", "ready": False, "restartCount": 3}
    status = {
        "conditions": [{"type": "Ready", "status": "False"}],
        "containerStatuses": [{**container, "state": {"waiting": waiting}}],
    }
    with api_client(source.kubeconfig) as api:
        objects = Objects(api)
        pods = objects.list("Pod", namespace=source.namespace).items
        (pod,) = [
            each["metadata"]["name"] for each in pods if each["metadata"]["name"].startswith(f"{pool}-")
        ]
        objects.patch("Pod", pod, {"status": status}, namespace=source.namespace, subresource="status")
    for view in pools.watch(pool):
        if view.reason == "CrashLoopBackOff":
            break
    printed = failed("pool", "wait", pool)
    assert "CrashLoopBackOff" in printed
    shown = execute_hint(
        source.holdfast, printed, "Run `holdfast pool get {}`. Correct the template, then create both again."
    )
    assert "CrashLoopBackOff" in shown
    assert json.loads(source.holdfast("pool", "get", pool, "--json"))["reason"] == "CrashLoopBackOff"
