"""Search in logs: the terms of a query, the text that an entry is found by, the index, and the ranking.

A store returns candidates, entries whose text contains some of the terms. The manager ranks them.
"""

from memman.search.scan import scan
from memman.search.snippets import matches_in
from memman.search.terms import in_pairs, searchable, terms_of

__all__ = ["in_pairs", "matches_in", "scan", "searchable", "terms_of"]
