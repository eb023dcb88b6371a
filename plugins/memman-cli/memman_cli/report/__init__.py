"""A session as one HTML file that needs no network.

`usage`, `steps` and `data` compute the page's data, `redaction` removes content from it, and `document`
puts it into the page. The files in `page/` are the page's HTML, CSS and JavaScript.
"""

from memman_cli.report.document import GENERATOR, PageOptions, pieces, render, write

__all__ = ["GENERATOR", "PageOptions", "pieces", "render", "write"]
