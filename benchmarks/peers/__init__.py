"""What people use today, on the same workload with the same counter and summarizer.

Each module has functions that import its library and give a subject; they raise `ImportError` without it.
"""
