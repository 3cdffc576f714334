"""The live view: a local, read-only HTTP server that follows runs and shows every sample.

row_files.py     lines of growing, rotated or rewritten files, with their places
sample_index.py  a row of a few columns per sample, and its filters; texts stay on disk until opened
app.py           followed runs, routes and the token; live.html and live.js are the page
"""
