"""Commands over stored rollouts: export, import, profile, compare, show, reverify and view.

Each is in the file of its name (importing.py has import). show_lines.py lays out what show prints,
reverifying.py does what reverify says, pages.py writes the files of profile and compare.
"""
