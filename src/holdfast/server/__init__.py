"""The gateway's HTTPS API."""
