"""Tests that find one gateway and leave it as it was: one is brought up for all of their files."""
