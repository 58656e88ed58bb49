"""`tenancy demo`: the main job from end to end on real input, and a check for every promise it shows."""
