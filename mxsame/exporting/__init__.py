"""What the writers of all formats share."""
