"""A run: its preparation, its turns, its journal, and its part of the results."""
