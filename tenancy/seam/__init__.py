"""The seam to Haystack: binding a run to its session, the hooks of an `Agent`, and the tools its model reads with."""
