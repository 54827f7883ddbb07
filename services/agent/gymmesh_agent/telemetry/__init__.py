"""What is measured and traced of attempts."""
