"""Errors and deaths at every system call, and deaths at random."""
