"""Breaks the library on purpose, one line at a time, and counts which breaks a test notices."""
