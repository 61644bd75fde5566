"""A run: what it begins with, its turns, its journal, and its part of the results."""
