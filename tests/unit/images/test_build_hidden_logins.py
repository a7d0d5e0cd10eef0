"""The login of a proxy is in no log of a build."""

from holdfast.images.build import BuildStage, image_steps
from holdfast.images.build_cache import BuildCache
from holdfast.images.recipe import Recipe
from holdfast.workflow import MemoryStore, Secret, Workflow

LOGIN = Secret("proxy.credentials", "user:hunter2-9d1c")


def test_log_of_a_stage_does_not_show_secrets(tmp_path, monkeypatch):
    monkeypatch.setenv("HOLDFAST_CACHE", str(tmp_path))
    cache = BuildCache()
    stage = BuildStage(
        cache,
        "download",
        "Download",
        "key",
        lambda _target, tools: tools.run(["echo", f"connecting as {LOGIN.text()}"]),
        secrets=[LOGIN],
    )
    Workflow("build", [stage]).run(store=MemoryStore())
    text = cache.log_path("download").read_text()
    assert text.startswith("connecting as ")
    assert "hunter2" not in text


def test_all_stages_of_an_image_know_the_secrets():
    stages = [
        step for step in image_steps(Recipe("sandbox"), None, {}, [LOGIN]) if isinstance(step, BuildStage)
    ]
    assert len(stages) > 1
    assert all(stage._secrets == [LOGIN] for stage in stages)
