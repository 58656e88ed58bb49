"""What is sealed stays sealed, and comes back exactly."""
