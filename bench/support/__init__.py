"""Helpers shared by several benchmarks."""
