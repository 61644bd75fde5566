"""Analysing content: of files, a batch at a time, and of unallocated space, a range at a time."""
