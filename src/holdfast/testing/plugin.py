"""The pytest plugin: fixtures that start what a test needs and stop just that."""
