"""From rows to counts: where a score lies, and how many lie there."""
