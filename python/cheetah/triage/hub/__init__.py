"""The hub: the process that opens the source, hands out tasks, and writes their results."""
