"""Starts the runtime as `python3 -I <directory>`, so that files of the workspace are never imported."""  # noqa: INP001

from holdfast.runtime.http_server import main

main()
