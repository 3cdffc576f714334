"""Run folders: configuration, provenance, results, and the state for a resume. See docs/read-a-run.md.

folder.py            layout, attempts, locks
starting.py          start, stop and end of an attempt; lease.py: its heartbeat
resuming.py          what a run started with, and refusals to continue it with anything else
provenance.py        run.json and patches; accelerators.py: GPUs of this host
rollouts.py          judged and ungradable samples
overview.py          metrics, summary.json, a run in one line, its live view
checkpoints.py       manifests and verification; checkpoint_store.py: copies at a URL
starting_model.py    files of a model besides its weights, for exports
mirror.py            the folder's copy at a URL; following.py: its readers; masking.py: its secrets
shared_folder.py     what the nodes of a run see
console.py           copies of a program's output
runs_config.py       the keys of a run's records
"""
