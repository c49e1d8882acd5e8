"""These apps are data of tests, not tests."""

collect_ignore_glob = ["*.py"]
