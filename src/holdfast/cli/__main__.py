"""`python -m holdfast.cli`: the same as the `holdfast` script."""

from holdfast.cli import main

main()
