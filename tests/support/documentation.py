"""The code blocks of the documentation, and how each of them is executed.

Every block in Python, `sh` or `console` is executed: by tests/e2e/test_documentation.py on a real gateway,
unless a table below names another place or a reason. tests/unit/test_holdfast_documentation.py compares the
tables with the pages. A block is named by its page and the start of its first line.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
EXECUTABLE = ("python", "sh", "console")
OTHER_LANGUAGES = ("text", "diagram", "json", "toml")
GATEWAY = "dev"
"""The name of the gateway in the documentation; tests replace it by the name of theirs."""

WITHOUT_GATEWAY = (
    'guides/write-a-workflow: print(build(world).plan({"title": "Q3"}, store=SQL',
    "guides/retry-kubernetes-calls: from holdfast import Policy, retry",
    "guides/retry-kubernetes-calls: from holdfast.retry import constant, testing_mode",
    "guides/retry-kubernetes-calls: from holdfast import Policy, resilient",
    "guides/retry-kubernetes-calls: from holdfast.kube import opentelemetry, prometheu",
    "reference/errors: holdfast stop lba",
    "reference/errors: holdfast sandbox logs box --tail -1",
)
"""Blocks that need no gateway; tests/unit/test_holdfast_documentation.py executes them."""

EXECUTED_ELSEWHERE = {
    "README: uv tool install ./holdfast-0.1.0-py3-none-any.whl": ("tests/e2e/test_wheel_installation.py"),
    "README: from holdfast import Gateway": "tests/e2e/test_sdk_first_use.py",
    "guides/install: pip wheel --no-deps --wheel-dir dist .": ("tests/e2e/test_wheel_installation.py"),
    "guides/install: uv tool install ./holdfast-0.1.0-py3-none-any.whl": (
        "tests/e2e/test_wheel_installation.py"
    ),
    "guides/k8s-agent-sandbox: holdfast up dev --push-image holdfast/sandbox:0.1.": (
        "tests/e2e/test_sandbox_image.py"
    ),
    "guides/k8s-agent-sandbox: from k8s_agent_sandbox import SandboxClient": (
        "tests/e2e/test_sandbox_image.py"
    ),
    "guides/push-images: docker build -t my-app:dev .": "tests/e2e/shared/test_image_push.py",
    "guides/remote-hosts: holdfast up lab --remote me@bighost": "tests/e2e/test_remote_gateway.py",
    "guides/upgrade: holdfast upgrade lab --plan": "tests/e2e/test_upgrade.py",
    'guides/write-a-workflow: """publish: put a report online; resumable after a': (
        "tests/integration/workflow/test_guide_example.py"
    ),
    'guides/write-a-workflow: """publish: put a report online; resumable after a (2)': (
        "tests/integration/workflow/test_guide_example.py"
    ),
    "guides/retry-kubernetes-calls: from holdfast.kube import Objects, api_client, env": (
        "tests/integration/kube/test_ensure_and_delete.py"
    ),
    "guides/write-a-workflow: def listed(world: Path) -> dict[str, int]:": (
        "tests/integration/workflow/test_guide_example.py"
    ),
    "guides/fault-injection: from holdfast.testing.apiserver.outcome_audit impo": (
        "tests/integration/kube/test_outcomes_match_server.py"
    ),
    "guides/fault-injection: from kubernetes import client, config": (
        "tests/integration/kube/test_ambiguous_outcomes.py"
    ),
    "guides/fault-injection: faulty_kube.outage(20)": "tests/integration/kube/test_api_server_outage.py",
    "guides/fault-injection: log.faults()": "tests/integration/kube/test_api_server_outage.py",
    "guides/fault-injection: python -m holdfast.testing.faults --kubeconfig ~/.": (
        "tests/unit/testing/faults/test_proxy.py"
    ),
    "reference/cli/image: holdfast image save images.tar.gz": "tests/e2e/test_wheel_installation.py",
}
"""Blocks whose commands and calls another test executes, in the situation that they need."""

_INSTALLS = (
    "changes the packages and services of the machine; every run of the tests begins with these commands"
)
NOT_EXECUTED = {
    "README: make up": _INSTALLS,
    "CONTRIBUTING: make env": _INSTALLS,
    "CONTRIBUTING: make lint": "runs this test",
    "getting-started: make up": _INSTALLS,
    "guides/ci: holdfast image load images.tar.gz": (
        "needs an archive of several hundred megabytes, and runs tests of the reader"
    ),
    "guides/gpus: holdfast up dev --gpus all": "needs a GPU",
    "guides/install: make up": _INSTALLS,
    "guides/install: uv tool install './holdfast-0.1.0-py3-none-any.whl": _INSTALLS,
    "guides/install: pip install '/path/to/clone[testing]'": "changes the environment of the tests",
    "guides/install: holdfast destroy dev --data": (
        "removes the gateway of the other blocks; tests/e2e/test_lifecycle.py destroys gateways"
    ),
    'guides/sandboxes: with Gateway("dev").sandboxes() as sandboxes: (2)': "never ends",
    "reference/cli-and-python: from holdfast import Gateway": (
        "moves the gateway to a port that another one may have"
    ),
    "reference/cli/secret: holdfast secret create db <db.env": "needs the password manager `pass`",
    "reference/http-api: cd ~/.config/holdfast/gateways/dev/mtls/current": (
        "PORT is a placeholder; tests/integration/server executes the requests"
    ),
    "reference/images: holdfast image build sandbox-full": "downloads packages of several hundred megabytes",
    "reference/metrics: kubectl -n holdfast port-forward deployment/holdfa": ("never ends"),
}
"""Blocks that no test executes, with the reason."""

NOT_EXECUTED_COMMANDS = {
    "holdfast sandbox connect": "needs a terminal",
    "holdfast sandbox forward": "runs until Ctrl-C",
    "holdfast sandbox list --watch": "runs until Ctrl-C",
    "holdfast sandbox output": "contains the id of a command of the page",
    "holdfast sandbox kill": "contains the id of a command of the page",
    "holdfast up lab": "needs another host",
    "holdfast use lab": "needs another gateway",
    "holdfast upgrade": "needs another node image; tests/e2e/test_upgrade.py executes it",
    "holdfast destroy": "removes the gateway of the other blocks",
}
"""Beginnings of commands that are left out of a block, with the reason."""

ASKS = ("holdfast sandbox delete",)
"""Beginnings of commands that ask on a terminal; they get `--yes`, as in a script."""

_CREATE_A = "holdfast sandbox create a"
SHELL_SETUP = {
    "getting-started: holdfast sandbox exec first -- sh -c 'echo remembe": "holdfast sandbox create first",
    "README: holdfast up dev": "mkdir project; echo x >project/file",
    "guides/sandboxes: holdfast sandbox create a --env COLOUR=blue": (
        "mkdir -p project/out; echo x >project/out/file"
    ),
    "guides/sandboxes: holdfast secret create db <db.env": "echo PASSWORD=example >db.env",
    "guides/sandboxes: holdfast sandbox update a --memory 4Gi --cpu 1 --l": _CREATE_A,
    "guides/sandboxes: holdfast sandbox create b --label team=blue": f"{_CREATE_A} --label team=blue",
    "guides/sandboxes: while read -r name; do holdfast sandbox exec -n a": (
        f"{_CREATE_A}; printf '%s\\n' one two >names"
    ),
    "guides/sandboxes: holdfast sandbox exec --background a -- sh -c 'mak": _CREATE_A,
    "guides/sandboxes: holdfast sandbox ls -l a:project": (
        f"{_CREATE_A}; holdfast sandbox exec a -- sh -c 'mkdir project; echo {{}} >project/result.json'"
    ),
    "guides/sandboxes: holdfast sandbox cp ./project a:work": (
        f"{_CREATE_A}; holdfast sandbox exec a -- sh -c 'mkdir out; echo x >out/file'; "
        "mkdir project; echo x >project/file"
    ),
    "guides/warm-pools: holdfast template create py-2 --memory 2Gi": (
        "holdfast template create py --memory 1Gi; holdfast pool create py-pool --template py --size 1"
    ),
}
"""Commands that run before a block of commands, in the same directory."""

_SANDBOX = (
    "from holdfast import Gateway\n"
    f'sandbox = Gateway("{GATEWAY}").sandbox("a")\nsandbox.create()\nsandbox.wait()\n'
)
_KUBE = (
    "from kubernetes import client\nfrom holdfast import resilient\ncore = resilient(client.CoreV1Api())\n"
)
PYTHON_SETUP = {
    'guides/sandboxes: async with Gateway("dev").sandbox("a") as sandbox:': "import asyncio\n" + _SANDBOX,
    'guides/sandboxes: command = sandbox.exec("python3", "train.py", back': (
        _SANDBOX + 'sandbox.files.write("train.py", "print(1)")\n'
    ),
    'guides/sandboxes: sandbox.files.write("src/main.py", "print(6 * 7)")': _SANDBOX,
    'guides/sandboxes: with Gateway("dev").sandboxes() as sandboxes:': "from holdfast import Gateway\n",
    'guides/sandboxes: with Gateway("dev").secrets() as secrets:': (
        'from holdfast import Gateway\nkey_bytes = b"key"\n'
    ),
    "guides/sandboxes: from holdfast import Gateway": ('from pathlib import Path\nPath("project").mkdir()\n'),
    "reference/cli/timeline: from pathlib import Path": (
        "from pathlib import Path\nfrom holdfast import Workflow\nfrom holdfast.workflow import SQLiteStore\n"
        'backup = Workflow("backup")\n@backup.step(repeat="safe")\ndef copy() -> None: ...\n'
        'backup.run({}, store=SQLiteStore(Path("backup.db")))\n'
    ),
    "guides/retry-kubernetes-calls: from kubernetes import client, config": (
        "import os\nfrom holdfast.kube import Objects, api_client, pod\n"
        'objects = Objects(api_client(os.environ["KUBECONFIG"]))\n'
        'objects.ensure(pod("web-0", "holdfast.invalid/none:1"), namespace="default")\n'
    ),
    "guides/retry-kubernetes-calls: from holdfast import Policy, resilient": (
        "from kubernetes import client\n"
    ),
    "guides/retry-kubernetes-calls: from holdfast.kube import WriteOutcome, write_outc": (
        "from kubernetes import config\nconfig.load_kube_config()\n"
        + _KUBE
        + 'body = {"metadata": {"name": "doc"}}\n'
    ),
    "guides/retry-kubernetes-calls: from holdfast.kube import opentelemetry, prometheu": _KUBE,
    "guides/retry-kubernetes-calls: from holdfast import Policy, retry": (
        'from pathlib import Path\npath = Path("token")\npath.write_text("secret")\n'
    ),
    "guides/retry-kubernetes-calls: from holdfast.retry import constant, testing_mode": (
        "from holdfast import Policy\nfailures = [ConnectionError()]\n"
        "def fails_once() -> None:\n    if failures:\n        raise failures.pop()\n"
    ),
    'guides/write-a-workflow: print(build(world).plan({"title": "Q3"}, store=SQL': (
        'world = Path("world")\nstate = world / ".publish"\nstate.mkdir(parents=True)\n'
    ),
}
"""Code that runs before a block of Python, in the same namespace."""


_MAX_START = 50
_WORKFLOW_GUIDE = "docs/guides/write-a-workflow.md"
_RUNNER = """\
import ast, asyncio, inspect

names = {{"__name__": "block"}}
for source in ({setup!r}, {code!r}):
    code = compile(source, {place!r}, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    result = eval(code, names)
    if inspect.iscoroutine(result):
        asyncio.run(result)
"""


class Block(NamedTuple):
    """A code block of a page; `number` counts the blocks of the page that begin alike."""

    page: str
    line: int
    language: str
    text: str
    number: int

    @property
    def name(self) -> str:
        """Page and start of the first line; with a number if an earlier block of the page begins alike."""
        page = self.page.removeprefix("docs/").removesuffix(".md")
        return f"{page}: {_start(self.text)}" + (f" ({self.number})" if self.number > 1 else "")

    def commands(self) -> list[str]:
        """The commands of a block, without those that are left out, and with `--yes` where they ask."""
        lines = self.text.splitlines()
        if self.language == "console":
            lines = [line[2:] for line in lines if line.startswith("$ ")]
        commands = [line for line in lines if line.strip() and not line.lstrip().startswith("#")]
        return [_without_question(each) for each in commands if not _is_left_out(each)]


def python_program(block: Block) -> str:
    """A program that executes a block of Python; the block may contain `await` outside of a function."""
    setup = PYTHON_SETUP.get(block.name, "")
    if block.page == _WORKFLOW_GUIDE and block.text.startswith("print("):
        example = next(each.text for each in code_blocks() if each.page == _WORKFLOW_GUIDE)
        setup = example.replace('if __name__ == "__main__":\n    sys.exit(main())\n', "") + setup
    return _RUNNER.format(setup=setup, code=block.text, place=f"{block.page}:{block.line}")


def run_block(
    block: Block, folder: Path, environment: dict[str, str], gateway: str = GATEWAY
) -> subprocess.CompletedProcess[str]:
    """Execute a block in a folder, with `gateway` in place of the name that the documentation uses.

    Commands run one after the other until one fails; stdout contains the output of all of them.
    """
    if block.language != "python":
        names = re.compile(rf"(?<=holdfast )(\w+) {GATEWAY}\b")
        replacement = rf"\1 {gateway}"
        # Not `bash -e`: a line such as `false; echo $?` succeeds.
        lines = [f"{{ {names.sub(replacement, each)}\n}} || exit" for each in block.commands()]
        setup = f"set -e\n{SHELL_SETUP.get(block.name, ':')}\nset +e"
        words = ["bash", "-c", "\n".join([setup, *lines])]
    else:
        code = python_program(block).replace(f'"{GATEWAY}"', f'"{gateway}"')
        is_test = "\ndef test_" in block.text
        path = folder / ("test_block.py" if is_test else "block.py")
        path.write_text(block.text if is_test else code)
        pytest = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "--strict-markers"]
        words = [sys.executable, *(pytest if is_test else []), path.name]
    search_path = f"{Path(sys.executable).parent}:{environment['PATH']}"
    home = {"HOME": str(folder)} if "~" in block.text else {}
    return subprocess.run(
        words, cwd=folder, env={**environment, "PATH": search_path, **home}, timeout=600,
        capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip


def _start(text: str) -> str:
    first = text.partition("\n")[0].removeprefix("$ ")
    return re.sub(r"\s+#.*", "", first)[:_MAX_START].rstrip()


def _is_left_out(command: str) -> bool:
    return any(f"{command} ".startswith(f"{each} ") for each in NOT_EXECUTED_COMMANDS)


def _without_question(command: str) -> str:
    if not command.startswith(ASKS) or "--yes" in command:
        return command
    return re.sub(r"^[^#]*[^# ]", r"\g<0> --yes", command, count=1)


def code_blocks() -> list[Block]:
    """All code blocks of the README and of docs/."""
    found, names = [], dict[tuple[str, str], int]()
    for path in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))):
        text, page = path.read_text(encoding="utf-8"), path.relative_to(ROOT).as_posix()
        for fence in re.finditer(r"^```([a-z]*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
            key = page, _start(fence[2])
            names[key] = names.get(key, 0) + 1
            found.append(Block(page, text.count("\n", 0, fence.start()) + 1, fence[1], fence[2], names[key]))
    return found


def blocks_for_gateway() -> list[Block]:
    """The blocks that run on a gateway; a block may consist of commands that are left out."""
    others = {*WITHOUT_GATEWAY, *EXECUTED_ELSEWHERE, *NOT_EXECUTED}
    blocks = [each for each in code_blocks() if each.language in EXECUTABLE and each.name not in others]
    return [each for each in blocks if each.language == "python" or each.commands()]
