"""What a gateway is: its spec, its identity, the ordered plan of each command."""
