"""The programs of a run: Cheetah, its peers, the tools of an examiner, and helpers."""
