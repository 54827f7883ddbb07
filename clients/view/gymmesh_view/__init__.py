"""A local page that shows stored rollouts, and those of a run that goes on."""
