"""Measuring one command: caches, time, counters, and what limited it."""
