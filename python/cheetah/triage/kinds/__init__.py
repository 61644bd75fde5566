"""Kinds of files: the type of a content, and whether a file's name agrees with it."""
