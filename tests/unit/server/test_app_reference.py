"""docs/reference/http-api.md lists every route, and every code of an error response."""

import ast
import re
from pathlib import Path

from litestar.routes import HTTPRoute, WebSocketRoute

from holdfast import server
from holdfast.server.app import create_app

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "reference" / "http-api.md").read_text()


def section(title):
    return PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]


def routes():
    """Method and path of each route for clients; a WebSocket begins with a GET."""
    for route in create_app("dev", None, None, None, None).routes:
        path = re.sub(r"\{(\w+):\w+\}", r"{\1}", route.path)
        if not path.startswith("/v1/"):
            continue
        if isinstance(route, WebSocketRoute):
            yield f"GET {path}"
        elif isinstance(route, HTTPRoute):
            methods = set().union(*(handler.http_methods for handler in route.route_handlers)) - {"OPTIONS"}
            yield from (f"{method} {path}" for method in methods)


def test_every_route_is_listed():
    listed = re.findall(r"`([A-Z]+ /v1/[^`?]+)[^`]*`", section("Routes"))
    assert sorted(listed) == sorted(routes())


def codes_in_source():
    """The codes that functions of the server pass to their errors, as literals."""
    for path in Path(server.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] in FUNCTIONS:
                first = node.args[FUNCTIONS[ast.unparse(node.func).split(".")[-1]]]
                if isinstance(first, ast.Constant):
                    yield first.value


FUNCTIONS = {"ApiError": 1, "conflict": 0, "bad_request": 0, "unprocessable": 0}


def test_every_code_of_an_error_is_listed():
    found = set(codes_in_source())
    assert len(found) >= 20
    assert sorted(code for code in found if f"`{code}`" not in section("Errors")) == []
