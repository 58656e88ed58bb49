"""Attackers that are real processes, and what they get out of the library."""
