"""The sandbox service: machines to work in, lent to agents and verifiers by lease.

``leases`` and ``admission`` decide and are pure; ``backends`` run sandboxes; ``service`` speaks
the contract.
"""
