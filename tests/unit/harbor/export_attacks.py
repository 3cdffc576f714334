"""Programs that have read the verifier of exported tasks and try to earn what they have not earned.

`SECRET` stands for a regular expression, as bytes, of what the tests expect; `LOGS` for the reward's
folder. Each prints or returns something wrong unless it gets at the secret.
"""

from tests.text_cases import sources, text_cases

SOURCES = sources(__file__)

WRONG = "\nprint('x')\ndef f(k): return 0\n"
TOOLS = SOURCES["tools"]
ANSWERS = """
answer()
def f(k): return int(found[0]) if found else 0
"""


def program(kind: str, body: str) -> str:
    """An attack with the tools that it uses: it spies for the answer, or prints a wrong one."""
    if kind == "alone":
        return body
    return f"{TOOLS}\n{body}{ANSWERS if kind == 'spies' else WRONG}"


ATTACKS = {
    name: program(kind, body) for name, kind, body in text_cases(__file__, "export_attacks.txt")
}
"""Those that strike their judges have no effect if the program has a user of its own, and else earn 0."""
