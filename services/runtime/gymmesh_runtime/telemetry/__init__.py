"""What a process says of itself while it runs: logs, traces, and how its metrics are counted.

The catalogue of all metrics is ``gymmesh_runtime/metrics.py``.
"""
