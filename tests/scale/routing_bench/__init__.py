"""A simulation of rollouts over several endpoints, and ways to route them."""
