"""Results on disk, and the tables and plots made of them."""
