"""The live view: a local, read-only HTTP server that follows runs and shows every sample.

row_files.py     lines of growing, rotated or rewritten files, with their places
sample_index.py  a row of a few columns per sample; texts stay on disk until a sample is opened
live_runs.py     followed runs: cards and charts, as on the static page
app.py           routes and the token; live.html and live.js are the page
"""
