"""Every published figure, reproducible: `workshop/bench/run`."""
