"""Where registrations are kept: one file a backend, behind ``base.RegistryBackend``."""

MEMBERS_ARE_ROOMS = True  # see tools/import_faces.py
