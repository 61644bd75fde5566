"""report.html: the fastest storage for each step, and the certainty of that; for screen and paper.

    page       assembles it
    verdict    what the figures say, in sentences
    number     a figure with its origin
    rows       the tables of steps, targets and the matrix, as the templates need them
    charts     the charts
    template/  text and styles

Each measured number is in an element with data-figure (PART/STEP/STATE, as in results.csv), data-target, data-stat
and data-value, so that a program can check the page against results.json. `cheetah.page` has the code common to all
pages.
"""

from cheetah.bench.report.page import render, write

__all__ = ["render", "write"]
