"""What a step of a case can do beside a plain call: raw bytes, a collector's talk, a watch."""
