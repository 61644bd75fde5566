"""The command line of `cheetah bench storage`."""
