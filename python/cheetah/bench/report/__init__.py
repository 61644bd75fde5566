"""report.html: which storage was fast for what, and whether to believe it. For a screen, and for paper.

page       puts it together
verdict    what the figures say in sentences, and nothing beyond them
number     a figure in the page that says where it is from
rows       the tables of steps, targets and of the matrix as the templates want them
charts     the drawings
template/  the words and the style

Each number that was measured stands in an element with data-figure (PART/STEP/STATE, as in results.csv), data-target,
data-stat and data-value, so that a program can hold the page against results.json. What all our pages have in common is
in `cheetah.page`.
"""

from cheetah.bench.report.page import render, write

__all__ = ["render", "write"]
