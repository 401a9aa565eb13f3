"""Shows what the analytics computed."""
