"""A capacity model of the mesh, and the runs at the small end that it is held to.

    measure_*.py   real services, watchers and collectors on this machine; they write figures.json
    figures.py     those figures as objects
    model.py       what the figures come to for one size: counts, processors, bytes. Closed forms
    collectors.py  several collectors on one mesh
    registry.py    what the registry's process has to do, step by step: restarts, upgrades
    zone.py        a zone lost, step by step
    page.py        the tables of docs/ideas/scaling.md, and its pictures

All but the measuring is arithmetic: the same figures give the same page.
"""
