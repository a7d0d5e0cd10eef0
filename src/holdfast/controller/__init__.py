"""kopf handlers that call the floors below; no logic of their own."""
