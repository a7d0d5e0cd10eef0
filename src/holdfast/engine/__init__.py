"""Steps, runner, store, lock. Knows nothing of Docker or Kubernetes."""
