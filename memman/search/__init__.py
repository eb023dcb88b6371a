"""Search in logs: the terms of a query, the text that an entry is found by, the index, and the ranking.

A store returns candidates, entries whose text contains some of the terms. The manager ranks them.
"""

from memman.search.ranking import Ranked, ranked
from memman.search.scan import scan
from memman.search.snippets import densest, matches_in, snippet_of
from memman.search.terms import MOST_TERMS, in_pairs, searchable, terms_of

__all__ = [
    "MOST_TERMS", "Ranked", "densest", "in_pairs", "matches_in", "ranked", "scan", "searchable",
    "snippet_of", "terms_of",
]  # fmt: skip
