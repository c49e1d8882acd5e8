"""Durable writes, locks and mounts: what survives a crash."""
