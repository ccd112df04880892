"""``python -m kohort``: the same as the command ``kohort``, for when that is not on the path."""

from kohort.cli.main import main

main()
