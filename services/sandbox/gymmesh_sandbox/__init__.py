"""The sandbox service: creates sandboxes, and issues leases for them to agents and verifiers.

``leases`` and ``admission`` decide and are pure. ``backends`` run sandboxes. ``service`` implements
the contract.
"""
