"""Drives that survive the loss of nodes: speed beside a stripe and beside other redundant storage, losses, and repair."""
