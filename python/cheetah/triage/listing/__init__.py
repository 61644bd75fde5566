"""Listing directories exactly as `fls -r -m /` does."""
