"""A wheel in a clean environment without the clone: install, load images, use a gateway, destroy it.

The engine is a new one without images, in a network namespace without a way out.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.holdfast_cli import HoldfastCli
from tests.support.private_container_engine import PrivateContainerEngine

ROOT = Path(__file__).resolve().parents[2]
UV = str(Path(sys.executable).parent / "uv")
PYTHON = str(Path(sys.base_prefix) / "bin" / f"python{sys.version_info[0]}.{sys.version_info[1]}")
# Where packages come from, and the cache of downloads; nothing else of the developer's environment.
PASSED_ON = ("UV_", "PIP_", "SSL_", "REQUESTS_CA_BUNDLE", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")
PASSED_ON += ("http_proxy", "https_proxy", "no_proxy")

PROGRAM = """
from holdfast import Gateway

with Gateway().sandbox("box") as box:
    print(box.exec("python3", "-c", "print(6 * 7)").text, end="")
"""

pytestmark = [
    pytest.mark.engine,
    pytest.mark.slow,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(os.geteuid() != 0, reason="an engine and a network namespace of one's own need root"),
]


class CleanUser:
    """A user with an empty home directory, outside of the clone."""

    def __init__(self, home):
        self.home = home
        cache = subprocess.run(
            [UV, "cache", "dir"], capture_output=True, text=True, check=True
        ).stdout.strip()
        self.environment = {name: value for name, value in os.environ.items() if name.startswith(PASSED_ON)}
        self.environment |= {
            "HOME": str(home), "PATH": f"{home}/bin:/usr/sbin:/usr/bin:/sbin:/bin", "UV_CACHE_DIR": cache,
            "UV_TOOL_DIR": f"{home}/tools", "UV_TOOL_BIN_DIR": f"{home}/bin",
            "PIPX_HOME": f"{home}/pipx", "PIPX_BIN_DIR": f"{home}/bin",
        }  # fmt: skip

    def run(self, *argv, prefix=(), **environment):
        """Run a program and return what it prints."""
        ended = subprocess.run(
            [*prefix, *argv], env={**self.environment, **environment}, cwd=self.home,
            capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        assert ended.returncode == 0, f"{argv}: {ended.returncode}\n{ended.stdout}{ended.stderr}"
        return ended.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [UV, "build", "--quiet", "--wheel", "--python", sys.executable, "--no-build-isolation",
         "--out-dir", folder, ROOT], check=True,
    )  # fmt: skip
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    """The images, saved on a machine that has built them."""
    folder = tmp_path_factory.mktemp("archive")
    HoldfastCli(folder)("image", "save", str(folder / "images.tar.gz"))
    return folder / "images.tar.gz"


@pytest.fixture(params=["uv", "pipx"])
def user(request, wheel, tmp_path):
    """A user who has installed the wheel with this tool."""
    user = CleanUser(tmp_path / "user")
    (user.home / "bin").mkdir(parents=True)
    pipx = (UV, "tool", "run", "--python", PYTHON, "pipx")
    installer = {"uv": (UV, "tool"), "pipx": pipx}[request.param]
    user.run(*installer, "install", "--python", PYTHON, str(wheel))
    return user


def test_installed_wheel_works_without_the_clone(user, archive):
    with PrivateContainerEngine() as engine:
        settings = {"DOCKER_HOST": engine.socket, "HOLDFAST_HOME": f"{user.home}/state"}

        def holdfast(*words):
            return user.run("holdfast", *words, prefix=engine.prefix, **settings)

        assert engine.connect().client.images() == []
        located = "import holdfast, sys; print(holdfast.__file__)"
        (python,) = (script.with_name("python") for script in user.home.glob("*/**/bin/holdfast"))
        assert user.run(str(python), "-c", located).startswith(str(user.home))
        assert json.loads(holdfast("image", "load", str(archive), "--json"))
        try:
            assert json.loads(holdfast("up", "dev", "--json"))["name"] == "dev"
            assert json.loads(holdfast("sandbox", "create", "box", "--json"))["phase"] == "Ready"
            assert holdfast("sandbox", "exec", "box", "--", "sh", "-c", "echo $((6 * 7))") == "42\n"
            assert user.run(str(python), "-c", PROGRAM, prefix=engine.prefix, **settings) == "42\n"
        finally:
            holdfast("destroy", "dev", "--data", "--yes", "dev")
        assert engine.connect().client.containers(all=True) == []
        assert json.loads(holdfast("list", "--json"))["gateways"] == []
