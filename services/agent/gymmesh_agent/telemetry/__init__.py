"""What is measured of an agent's attempts, and traced.

metrics   the metrics of rollouts
rollouts  what is counted of an attempt when it ends, and its spans
"""
