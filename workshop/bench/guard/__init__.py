"""The guard: a dozen figures of this build, each beside an earlier build of Cheetah, in turns on the same machine."""
