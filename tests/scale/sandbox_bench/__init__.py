"""Contenders of bench_sandboxes: sandboxes of ours and of others, and none at all."""
