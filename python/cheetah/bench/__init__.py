"""Which storage makes forensic work fast: real steps on each candidate, measured.

`cheetah bench` runs this. What measures with the lab is in bench/ of the sources, and builds on it.
"""
