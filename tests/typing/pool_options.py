"""Checked by mypy and pyright, never run: options of templates and pools, sync and async alike."""

from collections.abc import Iterator
from typing import assert_type

from holdfast import Gateway
from holdfast.api import (
    PoolDeletionResult,
    PoolOptions,
    PoolView,
    TemplateDeletionResult,
    TemplateOptions,
    TemplateView,
    Workspace,
)
from holdfast.client import AsyncPools, AsyncTemplates, Pools, Templates


def use(gateway: Gateway) -> None:
    with gateway.templates() as templates, gateway.pools() as pools:
        assert_type(templates, Templates)
        assert_type(pools, Pools)
        assert_type(templates.create("py", image="app:1", memory="1Gi", workspace=False), TemplateView)
        templates.create("py", "app:1", command=["sleep", "9"], workspace=Workspace(size="10Gi"), cpu=None)
        assert_type(templates.delete("py", ignore_missing=True), TemplateDeletionResult)
        assert_type(templates.list(), Iterator[TemplateView])
        assert_type(pools.create("p", template="py", size=3, update_strategy="Recreate"), PoolView)
        assert_type(pools.scale("p", 5), PoolView)
        assert_type(pools.wait("p", timeout=60.0), PoolView)
        assert_type(pools.delete("p"), PoolDeletionResult)
        assert_type([view.ready for view in pools], list[int])
        templates.create("py", memroy="1Gi")  # type: ignore[call-arg] # pyright: ignore[reportCallIssue]
        templates.create("py", memory=512)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
        templates.create("py", shutdown_after=60)  # type: ignore[call-arg] # pyright: ignore[reportCallIssue]
        pools.create("p", "py", sise=3)  # type: ignore[call-arg] # pyright: ignore[reportCallIssue]
        pools.create("p", "py", size="3")  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
        pools.create("p", "py", update_strategy="Never")  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
        pools.scale("p", size="5")  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]


async def use_async(gateway: Gateway) -> None:
    async with gateway.templates() as templates, gateway.pools() as pools:
        assert_type(templates, AsyncTemplates)
        assert_type(pools, AsyncPools)
        assert_type(await templates.create("py", env={"A": "b"}), TemplateView)
        assert_type(await pools.create("p", "py", size=3), PoolView)
        assert_type(await pools.wait("p"), PoolView)
        assert_type([view.name async for view in pools.list()], list[str])
        await templates.create("py", memroy="1Gi")  # type: ignore[call-arg] # pyright: ignore[reportCallIssue]
        await pools.create("p", "py", sise=3)  # type: ignore[call-arg] # pyright: ignore[reportCallIssue]


template_options: TemplateOptions = {"memory": "1Gi"}
pool_options: PoolOptions = {"size": 3}
Gateway("dev").templates().create("py", **template_options)
Gateway("dev").pools().create("p", "py", **pool_options)
