"""Timeline page and live dashboard; read events and stores only."""
