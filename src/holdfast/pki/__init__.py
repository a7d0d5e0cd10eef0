"""Certificates: a CA, what it signs, and what makes a bundle still good."""
