"""Isolated, encrypted, quota-bound tool-result stores for multi-user Haystack agents."""
