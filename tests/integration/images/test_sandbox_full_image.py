"""The optional image with compilers and Node.js, built by name."""

from __future__ import annotations

import pytest
from tests.support.holdfast_cli import HoldfastCli

from holdfast.images.recipe import image_reference
from holdfast.remote import connect
from holdfast.sandbox.from_request import is_sandbox_image

pytestmark = [pytest.mark.engine, pytest.mark.slow]

PROGRAMS = {
    "C": "echo 'int main(){return 42;}' > a.c && gcc a.c -o a && ./a; test $? = 42",
    "C++": "echo '#include <string>\nint main(){return std::string(\"ab\").size();}' > b.cpp"
    " && make b && ./b; test $? = 2",
    "CMake": "printf 'project(x C)\nadd_executable(x a.c)' > CMakeLists.txt"
    " && echo 'int main(){return 0;}' > a.c && cmake -B build . && cmake --build build && build/x",
    "Python extension": "printf '#include <Python.h>\n' > c.c && gcc -c $(python3-config --includes) c.c",
    "Node.js": "node -e 'process.exit(6 * 7 - 42)'",
    "npm": 'mkdir p && echo \'{"name":"p","version":"1.0.0","bin":"p.js"}\' > p/package.json'
    " && printf '#!/usr/bin/env node\nconsole.log(1)' > p/p.js && npm install --global ./p && p",
    "pip": "pip --version && uv --version && ls /sandbox",
}


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    HoldfastCli(tmp_path_factory.mktemp("home"))("image", "build", "sandbox-full")
    return image_reference("sandbox-full")


def test_is_a_sandbox_image(reference):
    assert is_sandbox_image(reference)
    assert connect().client.inspect_image(reference)["Config"]["User"] == "1000:1000"


@pytest.mark.parametrize("program", PROGRAMS)
def test_user_builds_and_runs(reference, program):
    client = connect().client
    limits = client.create_host_config(cap_drop=["ALL"], security_opt=["no-new-privileges"])
    words = ["bash", "-c", PROGRAMS[program]]
    container = client.create_container(reference, words, host_config=limits)["Id"]
    try:
        client.start(container)
        status = client.wait(container)["StatusCode"]
        assert status == 0, client.logs(container).decode()
    finally:
        client.remove_container(container, force=True)
