"""The parts of the benchmark, each measured by its `measure(settings)`."""
