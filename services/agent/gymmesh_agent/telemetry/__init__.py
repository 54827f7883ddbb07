"""What is measured of an agent's attempts, and traced.

metrics  the metrics of rollouts
tally    what an attempt did, counted when it ends, and its spans
"""
