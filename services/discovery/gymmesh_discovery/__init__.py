"""The discovery service: which instances are alive, and where.

``registry_view`` decides and is pure. ``backends`` store the registrations. ``service`` implements
the contract's RPCs.
"""
