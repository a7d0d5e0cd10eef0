"""The pytest plugin and its kits: public, may import all floors, imported by none."""
