"""The root filesystem is built below a path with spaces; only files of the new root are removed."""

import threading

from holdfast.images.build_tools import ToolRunner
from holdfast.images.debian_rootfs import build_rootfs
from holdfast.images.image_toml import DebianRootfs

FAKE_MMDEBSTRAP = """#!/bin/sh
root="$(dirname "$0")/new root"
for argument in "$@"; do
    case $argument in
    --customize-hook=*) sh -c "${argument#--customize-hook=}" hook "$root" ;;
    esac
done
"""


def test_paths_are_removed_below_root_with_spaces(tmp_path, monkeypatch):
    """A fake mmdebstrap runs the hooks as the real one does: by a shell, with the new root as `$1`."""
    programs, root = tmp_path / "bin", tmp_path / "bin" / "new root"
    outside = tmp_path / "bin" / "new"
    for path in (root / "var/log/dpkg.log", root / "usr/share/doc/a", root / "etc/passwd", outside):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
    for name, script in {"mmdebstrap": FAKE_MMDEBSTRAP, "newuidmap": "#!/bin/sh\n"}.items():
        (programs / name).write_text(script)
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(programs), prepend=":")
    tools = ToolRunner(tmp_path / "log", lambda message, fraction: None, threading.Event())
    debian = DebianRootfs(suite="trixie", packages=("curl",), removed_paths=("/usr/share/doc/*",))
    build_rootfs(debian, tmp_path, tools)
    assert sorted(path.name for path in root.rglob("*") if path.is_file()) == ["passwd"]
    assert outside.exists()
