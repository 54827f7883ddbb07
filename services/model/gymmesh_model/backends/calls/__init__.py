"""What every backend is given of a call: its parameters (settings.py), and where its deltas and
its answer up to now go (progress.py).
"""
