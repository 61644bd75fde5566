"""Every published figure, reproducible: `bench/run`."""
