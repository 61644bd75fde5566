"""The boot image: an ISO and a network-boot tree that start idle machines as nodes, or a suspect's machine as a source."""
