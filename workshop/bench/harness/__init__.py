"""The harness: contenders in turns, jobs of fio, and the figures that come of them."""
