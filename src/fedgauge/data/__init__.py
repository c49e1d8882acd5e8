"""Where rows come from: arrays, data frames and files."""
