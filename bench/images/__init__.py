"""The images that are acquired and examined; each is made once and kept."""
