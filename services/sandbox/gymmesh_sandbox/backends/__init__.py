"""What runs sandboxes: a module for each backend, behind the interface in ``base``."""
