"""The experiments of the documents that Cheetah follows: their tools, their parameters, beside models of their disks."""
