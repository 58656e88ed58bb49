"""Tests, each named as the promise it holds."""
