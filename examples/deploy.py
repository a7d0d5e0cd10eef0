"""A deployment that continues after any failure: copy a release, migrate a database, switch, announce.

    python examples/deploy.py ./site 1.0
    python examples/deploy.py ./site 1.1

Kill it anywhere and run it again. Each step observes whether its effect exists before it acts, so that
nothing happens twice except the announcement, which cannot be observed. The test of this example,
tests/integration/examples/test_deploy.py, kills it at every point.
"""

from __future__ import annotations

import argparse
import shutil
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

from holdfast import Workflow
from holdfast.errors import HoldfastError
from holdfast.workflow import FileLock, ProbeResult, SQLiteStore, StepContext, absent, done, partial

RELEASES = Path(__file__).parent / "releases"
# The migrations up to each version; a migration runs once per database.
MIGRATIONS = {
    "1.0": ("CREATE TABLE visitors (name TEXT)",),
    "1.1": ("CREATE TABLE visitors (name TEXT)", "ALTER TABLE visitors ADD COLUMN country TEXT"),
}

deploy = Workflow("deploy")


def find_release(site: Path, version: str) -> ProbeResult:
    return done("copied") if (site / "releases" / version).is_dir() else absent("not copied")


@deploy.step(title="Release", probe=find_release, touches=["the files of the release"])
def copy_release(site: Path, releases: Path, version: str) -> None:
    target = site / "releases" / version
    if target.is_dir():
        return  # runs because of another version, and this one is already there
    # A directory has its name only once it is complete: a probe must not see a part of it.
    temporary = target.with_name(f".{version}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    shutil.copytree(releases / version, temporary)
    temporary.rename(target)


def schema_version(site: Path) -> int:
    """The number of migrations that the database has."""
    if not (site / "app.db").exists():
        return 0
    with closing(sqlite3.connect(site / "app.db")) as database:
        return int(database.execute("PRAGMA user_version").fetchone()[0])


def check_schema(site: Path, version: str) -> ProbeResult:
    actual, wanted = schema_version(site), len(MIGRATIONS[version])
    if actual >= wanted:
        return done(f"{actual} migrations")
    return partial(f"{actual} of {wanted} migrations") if actual else absent("no database yet")


@deploy.step(title="Database", needs=[copy_release], probe=check_schema, touches=["the database"])
def migrate(ctx: StepContext, site: Path, version: str) -> None:
    with closing(sqlite3.connect(site / "app.db", isolation_level=None)) as database:
        for number, statement in enumerate(MIGRATIONS[version], 1):
            # Statement and number in one transaction, so that a kill leaves both or neither.
            database.execute("BEGIN IMMEDIATE")
            if database.execute("PRAGMA user_version").fetchone()[0] < number:
                ctx.progress(f"migration {number}")
                database.execute(statement)
                database.execute(f"PRAGMA user_version = {number}")
            database.execute("COMMIT")


def check_switch(site: Path, version: str) -> ProbeResult:
    link = site / "current"
    if not link.is_symlink():
        return absent("no release is current")
    actual = link.readlink().name
    return done(f"{actual} is current") if actual == version else partial(f"{actual} is current")


@deploy.step(title="Switch", needs=[migrate], probe=check_switch, touches=["the release that is served"])
def switch(site: Path, version: str) -> None:
    temporary = site / ".current.tmp"
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(Path("releases") / version)
    temporary.replace(site / "current")  # atomic: visitors see the old or the new release


@deploy.step(title="Check", needs=[switch], repeat="always")
def check_site(site: Path, version: str) -> None:
    page = (site / "current" / "index.html").read_text()
    if version not in page:
        raise RuntimeError(f"the site does not serve version {version}")


# Whether a message was sent cannot be observed.
@deploy.step(title="Announcement", needs=[check_site], repeat="at-least-once")
def announce(site: Path, version: str) -> None:
    with (site / "announcements").open("a") as announcements:
        announcements.write(f"{version} is live\n")


def build(site: Path) -> Workflow:
    """Return the deployment to a directory."""
    return deploy.bind(site=site, releases=RELEASES)


def main() -> int:
    parser = argparse.ArgumentParser(description="Deploy a release to a directory.")
    parser.add_argument("site", type=Path)
    parser.add_argument("version", choices=sorted(MIGRATIONS))
    parser.add_argument("--plan", action="store_true", help="print what would be done, and change nothing")
    options = parser.parse_args()
    state = options.site / ".deploy"
    params, store = {"version": options.version}, SQLiteStore(state / "state.db")
    try:
        if options.plan:
            print(build(options.site).plan(params, store=store))
            return 0
        result = build(options.site).run(params, store=store, lock=FileLock(state / "lock"))
    except HoldfastError as error:
        print(f"{error}\n{error.hint}", file=sys.stderr)
        return error.exit_code
    print(f"{options.version} is live: {len(result.changed)} steps ran, {len(result.skipped)} were done")
    return 0


if __name__ == "__main__":
    sys.exit(main())
