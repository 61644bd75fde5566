"""Shared parts of HTML reports: one self-contained file each, without any network request.

document   a page's templates and its policy: which styles and scripts may run, by their digests
visible    text that others wrote, made safe to look at, on a terminal as well
shown      such text in a page
svg        drawings
units      numbers and times
style.css  paper, letters, tables; light, dark and printed
"""
