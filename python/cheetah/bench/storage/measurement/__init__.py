"""Measuring one command: caches, time, counters, and its bottleneck."""
