"""The contract as it may look one minor version later, and peers that speak it."""
