"""Generated from the contract under proto/gymmesh. Do not edit."""
