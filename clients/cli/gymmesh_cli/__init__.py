"""gym-cli, the mesh on the command line. main.py names the commands; one that is used is imported.

collect/       collect, run
runs/          runs
stored/        export, import, profile, compare, show, reverify, view
data/          data
environments/  env
services/      up, serve, xds, certs, models, conformance

A file is named after its command, and has its options; what the command does is in another file
where it needs much, imported when the command runs. Below them, and imported by all:

shared/        what several commands do: the mesh and the tasks of one, tracking
options/       options of several commands
terminal/      what is written: text, exit codes, logs
"""
