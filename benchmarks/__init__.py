"""Reproducible measurements of memman: real conversations, cost, imports. See README.md."""
