"""What each store promises."""
