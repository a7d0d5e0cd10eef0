"""Retry: policy, backoff, deadline, budget. No product word in it."""
