"""What all writers of networks in other formats share; nothing here knows a format."""
