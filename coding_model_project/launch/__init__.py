"""Code that all recipes share, without verl: composition, checks, runs, sweeps and the pipeline."""
