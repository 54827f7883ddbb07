"""Much at once: rollouts that wait, rollouts that end, and conversations that grow."""
