"""The commands that `memman` comes with, in the order of its help."""

from __future__ import annotations

import click

from memman.cli.compress import compress
from memman.cli.count import count
from memman.cli.counters import counters
from memman.cli.demo import demo
from memman.cli.diff import diff
from memman.cli.export import export
from memman.cli.follow import follow
from memman.cli.formats import check_log, formats
from memman.cli.importing import import_log
from memman.cli.models import models
from memman.cli.plan import plan
from memman.cli.plugins import plugins
from memman.cli.report import report
from memman.cli.sessions import sessions
from memman.cli.show import show
from memman.cli.stats import stats
from memman.cli.undo import undo
from memman.cli.verify import verify
from memman.cli.why import why

COMMANDS: tuple[click.Command, ...] = (
    demo,
    import_log,
    sessions,
    follow,
    stats,
    show,
    compress,
    plan,
    diff,
    why,
    undo,
    export,
    verify,
    report,
    check_log,
    formats,
    count,
    counters,
    models,
    plugins,
)
