"""Analysing content: hashes, types, keywords and YARA rules, in files and in unallocated space."""
