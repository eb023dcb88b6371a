"""`python -m memman.cli`: the command without an installed script."""

from memman.cli import main

main()
