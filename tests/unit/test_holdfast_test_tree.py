"""The unit tests mirror the source tree, every source module is within reach of a test, and none sleeps."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SRC = ROOT / "src" / "holdfast"
UNIT = ROOT / "tests" / "unit"


def subjects(folder: Path) -> set[str]:
    """What the tests of a folder may be named after: the modules, packages and scripts in it, and itself."""
    mirrored = SRC / folder if (SRC / folder).is_dir() else ROOT / folder
    assert mirrored.is_dir(), f"tests/unit/{folder} mirrors neither src/holdfast/{folder} nor {folder}"
    return {path.stem.replace("-", "_") for path in mirrored.iterdir()} | {mirrored.name}


def is_named_after(test: Path, subject: str) -> bool:
    return re.fullmatch(rf"test_{subject}(_\w+)?", test.stem) is not None


def test_every_unit_test_is_named_after_a_module_or_package_of_its_folder():
    misplaced = [
        str(test.relative_to(ROOT))
        for test in sorted(UNIT.rglob("test_*.py"))
        if not any(is_named_after(test, subject) for subject in subjects(test.parent.relative_to(UNIT)))
    ]
    assert misplaced == []


def test_every_package_with_code_has_unit_tests():
    packages = {path.parent for path in SRC.rglob("*.py") if not path.stem.startswith("__")}
    untested = [
        str(package.relative_to(ROOT))
        for package in sorted(packages)
        if not list((UNIT / package.relative_to(SRC)).rglob("test_*.py"))
    ]
    assert untested == []


def test_every_module_has_a_unit_test_or_is_imported():
    """A module without a test file runs in the tests of the modules that import it."""
    texts = {
        path: path.read_text()
        for root in (SRC, ROOT / "tests")
        for path in root.rglob("*.py*")
        if path.suffix != ".pyc"
    }
    orphans = []
    for path in sorted(SRC.rglob("*.py")):
        tests = (UNIT / path.parent.relative_to(SRC)).glob("test_*.py")
        if path.stem.startswith("__") or any(is_named_after(test, path.stem) for test in tests):
            continue
        module = ".".join(path.relative_to(SRC.parent).with_suffix("").parts)
        package, _, name = module.rpartition(".")
        use = re.compile(rf"\b{module}\b|\bfrom {package} import [^)]*?\b{name}\b")
        if not any(use.search(text) for other, text in texts.items() if other != path):
            orphans.append(str(path.relative_to(ROOT)))
    assert orphans == []


def sleeps(source: str) -> list[int]:
    """The lines that wait for a fixed time; asyncio.sleep is allowed on an event loop with virtual time."""
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    forbidden = ["time.sleep", "threading.Event().wait"]
    if "run_virtual" not in source:
        forbidden.append("asyncio.sleep")
    return [
        call.lineno
        for call in calls
        if ast.unparse(call.func) in forbidden and [ast.unparse(argument) for argument in call.args] != ["0"]
    ]


def test_unit_tests_do_not_sleep():
    found = {
        str(path.relative_to(ROOT)): lines
        for path in sorted(UNIT.rglob("*.py"))
        if (lines := sleeps(path.read_text()))
    }
    assert found == {}, "use run_virtual, testing_mode, eventually or an event"


def test_sleeps_are_found():
    assert sleeps("import time\ntime.sleep(1)\nasyncio.sleep(0)\nawait asyncio.sleep(0.1)") == [2, 4]
    assert sleeps("run_virtual(x)\nawait asyncio.sleep(0.1)\nthreading.Event().wait(0.5)") == [3]
