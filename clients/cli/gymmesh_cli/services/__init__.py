"""Commands that start and try services: up, serve, xds, certs, models and conformance.

Each is in the file of its name; development_certificates.py makes what certs writes.
"""
