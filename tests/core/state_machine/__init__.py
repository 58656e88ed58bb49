"""The whole library against a model of it in plain Python."""
