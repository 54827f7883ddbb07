"""Dashboards for Grafana, and recording rules and alerts for Prometheus, as code.

Every metric's name comes from the room that declares it, and labels are checked against it, so that
a name that changes there changes here. `python -m deploy.observe` writes what it makes to where it
is used; `make check` fails while that differs.

    families.py         all metrics that the rooms declare
    promql.py           queries over our metrics
    rewards.py          the mean reward, which takes two metrics
    dashboard.py        panels and dashboards, and their JSON by Grafana's own SDK
    panels.py           panels and queries that several dashboards have
    dashboards/         a module for each dashboard
    rules.py            recording rules
    alerts.py           alerts
    generated_files.py  the files that are made, by their place in the repository
    picture.py          a dashboard drawn without Grafana, for the documentation
    prometheus_api.py   what panels show, asked of a Prometheus
    compact_svg.py      makes the drawings small

Nothing of it is in the wheel but the rules, which `gym-cli up --observe` gives to Prometheus.
"""
