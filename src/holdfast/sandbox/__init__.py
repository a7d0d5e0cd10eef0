"""What a sandbox is: its spec, pod template and workspace."""
