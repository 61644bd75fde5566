"""The images that are acquired and examined, each made once and kept, and the sites that serve them."""
