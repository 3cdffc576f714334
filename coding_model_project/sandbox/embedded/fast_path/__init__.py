"""The fast path: one process answers several inputs in turn, as separate processes would.

A process costs about 2 ms, an exchange 0.15 ms. The host sends up to 64 inputs at once. Inputs wait in
the channel for their turn: neither the program nor the process it is forked from has read them. Four
rules make the shortcut equivalent, and worthless to a program that knows it:

1. A program qualifies only if `stateless` proves that it keeps nothing from one input to the next. The
   proof is an allow-list: it rejects everything unknown.
2. The process gets an input only when its turn comes. An answer counts only if it is the one frame
   between this input and the next (`kept`). Anything else ends the process, and the input runs again on
   its own.
3. The grader starts a new process before a test whose expected answer occurs in the inputs that this
   process has received (`grading.sharing`).
4. All inputs of a process share the CPU time limit of one. So work that is carried over from input to
   input gains nothing.

Rule 1 is about the language: it cannot exclude an error in CPython's own C code (a use after free). A
program that deceives it learns only inputs that it has already answered, and can only change its own
later answers. `python -m tests.soak.fast_path` compares both ways over batteries, generated programs and
real ones.

Known differences: a program that depends on addresses of objects, or prints them, may answer differently
in either process; CPU and wall time are split between inputs.
"""
