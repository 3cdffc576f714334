"""A test of the real judge with adversarial and honest programs: escapes, forgeries and damage fail it.

A battery is JSON lines: `id`, `category`, `mode` (stdio, call or assert), `entry`, `code`, `tests`,
`limits`, `require`, and `then`, a second program that must see nothing of the first. Each case runs
alone, with bait on this machine: a secret in the environment and in a file, and listeners that must
stay untouched.
"""
