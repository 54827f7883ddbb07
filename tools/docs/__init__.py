"""Builds the documentation as a site: `make docs`.

shelves.py     the pages under docs/, and where each is listed
markdown.py    pages rewritten for the site: links out of docs/, comments of the docs tests (pure)
commands.py    a page for each command of gym-cli, from click (pure)
contract.py    a page for each package of the contract, from the comments of its .proto files
faces.py       a page for each public Python package; Sphinx fills it from docstrings (pure)
docstrings.py  docstrings as Sphinx reads them (pure)
source.py      puts all of it into one folder, which Sphinx reads
conf.py        Sphinx's configuration
links.py       checks every link of the built site
__main__.py    runs the steps

`make docs` runs it in .cache/docs/env, an environment of its own; see tools/docs.sh.
"""
