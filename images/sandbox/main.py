"""Starts the runtime, run as `python3 -I <its folder>`: what lies in the workspace is never imported."""  # noqa: INP001

from holdfast.runtime.command import main

main()
