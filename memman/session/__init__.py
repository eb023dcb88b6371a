"""Live sessions, their cache, and what reads or writes their logs: imports, exports, forks and the feed."""
