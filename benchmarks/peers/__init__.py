"""What people use today, on the same workload with the same counter and summarizer.

Each module has `load() -> Make`, which imports its library and raises `ImportError` without it.
"""
