"""Reading a source that may be slow, damaged or lost."""
