"""The host's kubeconfig: pointed at the published port, merged without touching foreign entries."""

import errno
import os
import shlex
import stat
import subprocess

import pytest
import yaml
from tests.support.hints import execute_hint
from tests.support.holdfast_cli import HoldfastCli

from holdfast import home
from holdfast.errors import CorruptFileError, DiskFullError, TemporaryError
from holdfast.gateway.cluster import kubeconfig
from holdfast.gateway.registry import GatewayFiles
from holdfast.retry import testing_mode

NODE = yaml.safe_dump(
    {
        "clusters": [
            {
                "name": "n",
                "cluster": {"server": "https://127.0.0.1:6443", "certificate-authority-data": "Y2E="},
            }
        ],
        "users": [{"name": "n", "user": {"client-certificate-data": "Y2VydA==", "client-key-data": "a2V5"}}],
        "contexts": [],
    }
).encode()


def test_host_kubeconfig_has_published_port_and_gateway_name():
    made = yaml.safe_load(
        kubeconfig.build_host_kubeconfig(NODE, name="dev", server="https://127.0.0.1:26443")
    )
    assert made["clusters"][0]["cluster"]["server"] == "https://127.0.0.1:26443"
    assert made["current-context"] == "holdfast-dev"
    assert {made[part][0]["name"] for part in ("clusters", "users", "contexts")} == {"holdfast-dev"}


def test_credentials_round_trip():
    found = kubeconfig.parse_credentials(
        kubeconfig.build_host_kubeconfig(NODE, name="dev", server="https://h:1"), "dev"
    )
    assert (found.ca, found.certificate, found.key) == (b"ca", b"cert", b"key")
    assert found.server == "https://h:1"
    assert repr(found) == "KubeCredentials(server='https://h:1')"


def test_missing_credentials_name_gateway_and_command():
    with pytest.raises(CorruptFileError, match="kubeconfig of gateway dev: no usable credentials") as caught:
        kubeconfig.parse_credentials(b"clusters: []", "dev")
    assert caught.value.hint == "Run `holdfast up dev` to write it again."


@pytest.mark.parametrize("content", [b"", b"[]", b"clusters: []", b"\xff\xfe", b"{"])
def test_partial_node_kubeconfig_is_transient(content):
    with pytest.raises(TemporaryError):
        kubeconfig.build_host_kubeconfig(content, name="dev", server="https://h:1")


def test_merge_keeps_foreign_entries(tmp_path):
    target = tmp_path / "config"
    theirs = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "work", "cluster": {"server": "https://work"}}],
        "users": [{"name": "work", "user": {"token": "t"}}],
        "contexts": [{"name": "work", "context": {"cluster": "work", "user": "work"}}],
        "current-context": "work",
        "preferences": {"colors": True},
    }
    target.write_text(yaml.safe_dump(theirs))
    ours = kubeconfig.build_host_kubeconfig(NODE, name="dev", server="https://h:1")
    kubeconfig.merge_into(target, ours, name="dev")
    kubeconfig.merge_into(target, ours, name="dev")
    merged = yaml.safe_load(target.read_text())
    assert [entry["name"] for entry in merged["clusters"]] == ["work", "holdfast-dev"]
    assert merged["users"][0] == theirs["users"][0]
    assert merged["preferences"] == {"colors": True}
    assert merged["current-context"] == "holdfast-dev"
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert kubeconfig.remove_from(target, name="dev")
    assert [entry["name"] for entry in yaml.safe_load(target.read_text())["clusters"]] == ["work"]


def test_merge_leaves_invalid_file_unchanged(tmp_path):
    target = tmp_path / "config"
    target.write_text("- not\n- a kubeconfig\n")
    with pytest.raises(CorruptFileError):
        kubeconfig.merge_into(
            target, kubeconfig.build_host_kubeconfig(NODE, name="d", server="https://h"), name="d"
        )
    assert target.read_text() == "- not\n- a kubeconfig\n"


def test_merge_target_is_the_file_kubectl_reads(monkeypatch, tmp_path):
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path}/a:{tmp_path}/b")
    assert kubeconfig.user_kubeconfig_path() == tmp_path / "a"


OURS = kubeconfig.build_host_kubeconfig(NODE, name="dev", server="https://h:1")


def folder_state(folder):
    """The files of a folder, without the times of access: a read changes them."""
    stats = {path: path.lstat() for path in folder.iterdir()}
    return {path: (stat.st_ino, stat.st_mode, stat.st_size, stat.st_mtime_ns) for path, stat in stats.items()}


def refused(target):
    """The one line of a refusal; the folder of the target is as it was before."""
    before = folder_state(target.parent)
    with pytest.raises(CorruptFileError) as caught:
        kubeconfig.merge_into(target, OURS, name="dev")
    assert folder_state(target.parent) == before
    assert caught.value.exit_code == 3
    assert "\n" not in caught.value.message
    assert str(target) in caught.value.message
    return caught.value.message


@pytest.mark.parametrize(
    "content", ["{", "just words", "- a\n- list\n", "clusters: seven\n", "users: [1, 2]\n"]
)
def test_invalid_kubeconfig_is_rejected_unchanged(tmp_path, content):
    target = tmp_path / "config"
    target.write_text(content)
    refused(target)
    assert target.read_text() == content


def test_read_only_file_is_not_replaced(tmp_path):
    target = tmp_path / "config"
    target.write_text("kind: Config\n")
    target.chmod(0o400)
    assert "read-only" in refused(target)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_file_of_other_user_is_not_replaced(tmp_path):
    target = tmp_path / "config"
    target.write_text("kind: Config\n")
    os.chown(target, 65534, 65534)
    assert "another user" in refused(target)


def test_directory_symlink_loop_and_dangling_symlink_are_rejected(tmp_path):
    folder, loop, lost = tmp_path / "folder", tmp_path / "loop", tmp_path / "lost"
    folder.mkdir()
    loop.symlink_to(loop)
    lost.symlink_to(tmp_path / "nothing-here")
    for target in (folder, loop, lost):
        refused(target)


def test_symlink_is_kept_and_its_target_merged(tmp_path):
    behind, link = tmp_path / "behind", tmp_path / "config"
    behind.write_text("")
    link.symlink_to(behind)
    kubeconfig.merge_into(link, OURS, name="dev")
    assert link.is_symlink()
    assert yaml.safe_load(behind.read_text())["current-context"] == "holdfast-dev"


def test_removal_clears_current_context_and_keeps_other_entries(tmp_path):
    target = tmp_path / "config"
    kubeconfig.merge_into(target, OURS, name="dev")
    kubeconfig.merge_into(
        target, kubeconfig.build_host_kubeconfig(NODE, name="dev2", server="https://h:2"), name="dev2"
    )
    kubeconfig.merge_into(target, OURS, name="dev")
    assert kubeconfig.remove_from(target, name="dev")
    left = yaml.safe_load(target.read_text())
    assert [entry["name"] for entry in left["contexts"]] == ["holdfast-dev2"]
    assert left["current-context"] == ""
    untouched = target.read_bytes()
    assert not kubeconfig.remove_from(target, name="dev")
    assert target.read_bytes() == untouched


def test_file_without_our_entry_is_not_opened_for_writing(tmp_path):
    target = tmp_path / "config"
    target.write_text("{ torn")
    assert not kubeconfig.remove_from(target, name="dev")
    assert target.read_text() == "{ torn"


@pytest.mark.parametrize(
    "own", [b"", b"{", b"just words", b"clusters: 5\n", b"clusters: [{name: a}]\n", b"\xff\xfe\x00"]
)
def test_corrupted_own_kubeconfig_is_not_merged(tmp_path, own):
    target = tmp_path / "config"
    target.write_text("apiVersion: v1\nkind: Config\n")
    with pytest.raises(CorruptFileError, match="kubeconfig of gateway dev: no usable credentials") as told:
        kubeconfig.merge_into(target, own, name="dev")
    assert "holdfast up dev" in told.value.hint
    assert target.read_text() == "apiVersion: v1\nkind: Config\n"


@pytest.mark.parametrize("change", ["merge", "removal"])
def test_change_by_another_program_is_not_lost(tmp_path, change):
    """kubectl and kind hold this lock file from their read until their write."""
    target, lock = tmp_path / "config", tmp_path / "config.lock"
    kubeconfig.merge_into(target, OURS, name="dev")
    lock.touch(exist_ok=False)
    content = yaml.safe_load(target.read_text())

    def finish_other_program(_seconds):
        content["contexts"].append({"name": "new", "context": {}})
        target.write_text(yaml.safe_dump(content))
        lock.unlink()

    with testing_mode() as clock:
        clock.sleep = finish_other_program
        if change == "merge":
            kubeconfig.merge_into(target, OURS, name="dev")
        else:
            assert kubeconfig.remove_from(target, name="dev")
    names = [entry["name"] for entry in yaml.safe_load(target.read_text())["contexts"]]
    assert names == (["new", "holdfast-dev"] if change == "merge" else ["new"])
    assert not lock.exists()


def test_locked_file_is_reported_with_the_file_to_remove(tmp_path):
    target, lock = tmp_path / "config", tmp_path / "config.lock"
    kubeconfig.merge_into(target, OURS, name="dev")
    before = target.read_bytes()
    lock.touch()
    with testing_mode(), pytest.raises(TemporaryError, match="config: another program is chang") as caught:
        kubeconfig.remove_from(target, name="dev")
    assert target.read_bytes() == before
    command = caught.value.hint.split("`")[1]
    subprocess.run(shlex.split(command), check=True)
    assert kubeconfig.remove_from(target, name="dev")


def test_full_disk_is_not_a_damaged_file(tmp_path, monkeypatch):
    def fail(path, content):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(home, "write_atomic", fail)
    with pytest.raises(DiskFullError, match=f"{tmp_path}/config: no space left"):
        kubeconfig.merge_into(tmp_path / "config", OURS, name="dev")
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def gateway_kubeconfig(tmp_path, monkeypatch):
    """The kubeconfig of gateway dev; the user's kubeconfig is another file."""
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    path = GatewayFiles("dev").kubeconfig
    path.parent.mkdir(parents=True)
    path.write_bytes(kubeconfig.build_host_kubeconfig(NODE, name="dev", server="https://127.0.0.1:26443"))
    return path


def test_merged_kubeconfig_is_outdated_after_a_port_change_until_it_is_merged_again(
    gateway_kubeconfig, tmp_path
):
    merged = tmp_path / "config"
    kubeconfig.merge_into(merged, gateway_kubeconfig.read_bytes(), name="dev")
    assert kubeconfig.merge_notes("dev", gateway_kubeconfig) == ()
    moved = kubeconfig.build_host_kubeconfig(NODE, name="dev", server="https://127.0.0.1:27000")
    gateway_kubeconfig.write_bytes(moved)
    (note,) = kubeconfig.merge_notes("dev", gateway_kubeconfig)
    assert note.startswith(f"{merged}: holdfast-dev is outdated")
    execute_hint(
        HoldfastCli(tmp_path / "home"),
        note,
        "{}: {} is outdated; run `holdfast kubeconfig {} --merge` to update it",
    )
    assert kubeconfig.merge_notes("dev", gateway_kubeconfig) == ()
    assert "27000" in merged.read_text()


@pytest.mark.parametrize(
    "content",
    [None, b"", b"\x00holdfast-dev", b"contexts: [{name: holdfast-development}]", b"holdfast-dev: {"],
)
def test_user_kubeconfig_without_the_gateway_has_no_note(gateway_kubeconfig, tmp_path, content):
    if content is not None:
        (tmp_path / "config").write_bytes(content)
    assert kubeconfig.merge_notes("dev", gateway_kubeconfig) == ()
