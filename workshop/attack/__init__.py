"""Attacks on every server and parser of Cheetah, on this machine only. `make attack` runs them; README.md describes them."""
