"""Inputs that one process answers, one after another, as each would be answered by a process of its own.

A process costs some 2 ms, an exchange 0.15 ms. The host asks for up to 64 inputs at once. Those whose
turn has not come wait in its channel: neither the program nor the process that it is forked from has read
them. Four rules make the shortcut equivalent, and worthless to a program that knows it:

1. A program qualifies only if `stateless` proves that it keeps nothing from one input to the next. The
   proof is an allow-list: it refuses what it does not know.
2. The process gets an input only when its turn comes. An answer counts only if it is the one frame
   between this input and the next (`kept`). Anything else ends the process, and the input runs again on
   its own.
3. The grader starts a new process before a test whose expected answer occurs in the inputs that this
   process has been given (`grading.sharing`).
4. All inputs of a process together have the CPU time of one. So work that is carried over from input to
   input gains nothing.

Rule 1 is about the language: an error in CPython's own C code (a use after free) is beyond it. A program
that deceives it learns nothing but inputs that it has already answered, and can only change its own later
answers. `python -m tests.soak.fast_path` compares both ways over batteries,
generated programs and real ones.

Listed differences: a program that goes by addresses of objects, or prints them, may answer otherwise in
either process; CPU and wall time are shared out by input.
"""
