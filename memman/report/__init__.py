"""A session as one HTML file that shows what happened. It needs no network, and what it shows stays text.

`usage` and `data` say what is shown, `hiding` what is not for others' eyes, `folding` how the window
changed from step to step, `document` puts it into the page, whose parts (HTML, CSS, JavaScript) are the
files of `page/`.
"""

from memman.report.document import GENERATOR, pieces, render, write

__all__ = ["GENERATOR", "pieces", "render", "write"]
