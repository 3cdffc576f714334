"""Code that all recipes share, without verl: composition, checks, runs, sweeps, the pipeline and the demo."""
