"""Benchmarks: `python -m benchmarks layers`. Every figure is a ratio of medians, measured side by side in one run."""
