"""The commands of `memman`, one module for each group of related ones."""
