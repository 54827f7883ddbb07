"""Text of others as it may be shown and stored: secrets masked, control characters written out."""
