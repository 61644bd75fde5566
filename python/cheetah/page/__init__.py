"""What the pages people read have in common: reports that need nothing else and ask the network for nothing.

document   a page's templates and its policy: which styles and scripts may run, by their digests
visible    text that others wrote, made safe to look at, on a terminal as well
shown      such text in a page
svg        drawings
units      numbers and times
style.css  paper, letters, tables; light, dark and printed
"""
