"""Benchmarks of storage: the steps of an examination on each candidate, measured.

`cheetah bench` runs this package.
"""
