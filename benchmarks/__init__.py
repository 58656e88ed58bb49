"""What this library costs, measured. Run from a checkout with the extra `dev`: `python -m benchmarks.NAME`."""
