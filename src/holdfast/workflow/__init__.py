"""Resumable workflows: ordered steps with probes, checkpoints, a lock, retries and a preview.

    from holdfast.workflow import FileLock, SQLiteStore, Step, Workflow, absent, done

The package does not depend on Docker or Kubernetes. Names are loaded on first use: describing a workflow does
not load SQLite. docs/decisions/0030-workflow.md explains the design.
"""

from holdfast import lazy_exports

__all__, __getattr__, __dir__ = lazy_exports.attach(__name__, __file__)
