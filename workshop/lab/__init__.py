"""A network on one machine: namespaces, rates and delays."""
