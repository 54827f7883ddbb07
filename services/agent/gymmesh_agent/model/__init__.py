"""Model calls: what is sent of a conversation, and what is read from the answer."""
