"""`python -m memman.cli`: the command where no script is installed."""

from memman.cli import main

main()
