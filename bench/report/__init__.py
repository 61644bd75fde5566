"""Results on disk, and RESULTS.md with its tables and plots made of them."""
