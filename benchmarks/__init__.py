"""Benchmarks: `python -m benchmarks --help`. Every figure is a ratio of medians, measured side by side in one run."""
