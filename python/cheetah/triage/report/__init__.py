"""report.html, for people: what was found, what to look at first and why, and what was not read.

page       puts it together
verdict    whether the figures stand for everything
kinds      the kinds of findings in words
charts     the drawings, made of `bins`
template/  the words, the style and the little script

What it shares with other pages is in `cheetah.page`.
"""

from cheetah.triage.report.page import render, write

__all__ = ["render", "write"]
