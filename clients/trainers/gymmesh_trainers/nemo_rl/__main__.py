"""`python -m gymmesh_trainers.nemo_rl`."""

from gymmesh_trainers.nemo_rl.command import main

main()
