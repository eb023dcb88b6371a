"""Explanations of what compression did with a session. Pure functions of its records.

`history` has the status of every entry and compression, `explanation` is the result of `explain`, and
`cache_state` has its part about the provider's cache. `shares` lists the largest parts of a window, and
`state_block` has its outline.
"""
