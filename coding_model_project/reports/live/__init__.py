"""The live view: a local, read-only HTTP server that follows runs, down to a sample and its tests.

row_files.py     lines of files that grow, are rotated or written anew, and where each is
sample_index.py  a row of a few columns per sample; texts stay on disk until a sample is opened
live_runs.py     runs that are followed: what stands above the samples, as in the static page
app.py           routes and the token; live.html and live.js are the page
"""
