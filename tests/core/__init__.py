"""What the core promises: sessions, results, quotas, lifetimes, cleanup, erasure, verify, starts."""
