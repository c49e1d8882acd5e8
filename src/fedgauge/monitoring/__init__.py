"""Results over time: how two differ, a series of them, and its alarms."""
