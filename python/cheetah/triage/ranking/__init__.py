"""Ranking: which files to read first, and which findings to show first."""
