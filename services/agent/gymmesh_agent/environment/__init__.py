"""The environment: an attempt's session, and its verdict."""
