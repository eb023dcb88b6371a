"""Summarizers as managers use them: given objects, names, programs.

`adapters` accepts a callable, a `Summarizer` or a name; `command` runs a program.
"""

from memman.summarizers.adapters import DIGEST, Asker, Summarizers
from memman.summarizers.command import CommandSummarizer

__all__ = ["DIGEST", "Asker", "CommandSummarizer", "Summarizers"]
