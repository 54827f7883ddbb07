"""Finished rollouts for a training loop: in Python, and through the hooks of the trainers."""
