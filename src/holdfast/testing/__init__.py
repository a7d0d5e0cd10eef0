"""Test kits: a real API server, fault injection and the crash matrix, with a pytest plugin."""
