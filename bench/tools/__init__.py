"""What is run: Cheetah, its peers, the tools of an examiner, and helpers beside them."""
