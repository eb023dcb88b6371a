"""Summarizers as managers use them: given objects, names, programs.

`adapters` accepts a callable, a `Summarizer` or a name; `command` runs a program.
"""

from typing import TYPE_CHECKING

from memman.lazy_imports import on_first_use
from memman.summarizers.adapters import OUTLINE, Asker, Summarizers

if TYPE_CHECKING:
    from memman.summarizers.command import CommandSummarizer
else:
    __getattr__ = on_first_use("memman.summarizers", {"command": "CommandSummarizer"})

__all__ = ["OUTLINE", "Asker", "CommandSummarizer", "Summarizers"]
