"""The demo: that it passes, and that it fails whenever it should."""
