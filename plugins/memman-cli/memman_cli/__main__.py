"""`python -m memman_cli`: the command without an installed script."""

from memman_cli.app import run

if __name__ == "__main__":
    run()
