"""What protection costs: the same work with and without it, interleaved, as ratios of medians."""
