"""Processes that work together on one data directory, killed at random and replaced."""
