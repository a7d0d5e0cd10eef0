"""What several benchmarks are built from; none of it is run by itself."""
