"""Adversarial and honest programs, judged for real: does anything escape, forge or break the judge?

A battery is JSON lines: `id`, `category`, `mode` (stdio, call or assert), `entry`, `code`, `tests`,
`limits`, `require`, and `then` for what must not persist. Each case runs alone, with bait laid out
on this machine: a secret in the environment and in a file, and listeners that must stay untouched.
"""
