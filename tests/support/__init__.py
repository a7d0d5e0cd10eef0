"""What several tests share and no user needs: the CLI as a process, a gateway, an engine of one's own."""
