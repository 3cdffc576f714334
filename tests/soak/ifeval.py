"""Judge recorded answers to IFEval's prompts, and compare with lm-eval's verdicts.

python -m tests.soak.ifeval PYTHON RESPONSES [DATA_FOLDER]

PYTHON is the interpreter of an environment of its own with `lm_eval[ifeval]==0.4.13` and nltk's data.
RESPONSES has a JSON object a line with `prompt` and `response`, as the authors of IFEval publish those of
GPT-4 (`input_response_data_gpt4_20231107_145030.jsonl`); DATA_FOLDER has ifeval_input_data.jsonl.

Both judge each answer as it is, changed in seven ways, and as the answer to another prompt: strictly and
loosely. Prints a table and a line per difference; exit code 1 if one has no reason in `explained`.
"""

import argparse
import json
import re
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import regex

from coding_model_project.codec import Plain
from coding_model_project.grading.instructions import follows, follows_loosely
from tests.soak.sources import SOURCES

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
OTHER_PROMPT = 7
"""Offset of a second prompt that each answer is also judged against."""

CHANGES: dict[str, Callable[[str], str]] = {
    "as recorded": lambda text: text,
    "lower case": str.lower,
    "upper case": str.upper,
    "no commas": lambda text: text.replace(",", ""),
    "no stars": lambda text: text.replace("*", ""),
    "first half": lambda text: text[: len(text) // 2],
    "twice": lambda text: f"{text}\n\n{text}",
    "no first line": lambda text: text.partition("\n")[2],
}

_PUBLISHER = SOURCES["lm-eval"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """An answer for both judges."""

    row: Mapping[str, Plain]
    response: str
    change: str


def lines(file: Path) -> list[dict]:
    return [json.loads(line) for line in file.read_text("utf-8").splitlines()]


def explained(kind: str, arguments: Mapping[str, Plain], response: str) -> str | None:
    """Return the reason for a difference in this instruction."""
    if kind == "keywords:letter_frequency" and not "a" <= str(arguments["letter"]).lower() <= "z":
        return "lm-eval counts a random letter instead"
    if kind == "length_constraints:number_words" and len(re.findall(r"\w+", response)) != len(
        regex.findall(r"\w+", response)
    ):
        return "nltk 3.10 counts by `regex`, where a word holds its vowel signs; IFEval's authors by `re`"
    if kind == "language:response_language" and any(
        line.strip() and not any(map(str.isalpha, line)) for line in response.splitlines()
    ):
        return "lm-eval says that a text without letters is in any language"
    if kind == "length_constraints:number_sentences" and re.search(
        r"\b[*]?[A-Za-z][*]?\.", response
    ):
        return "a sentence ends in one letter: ours does without nltk's list of words seen in lower case"
    return None


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("python", help="interpreter of lm-eval's environment")
    parser.add_argument("responses", type=Path)
    parser.add_argument("data_folder", nargs="?", type=Path, default=DATA)
    arguments = parser.parse_args()
    rows = lines(arguments.data_folder / "ifeval_input_data.jsonl")
    at = {row["prompt"]: number for number, row in enumerate(rows)}
    recorded = [one for one in lines(arguments.responses) if one["prompt"] in at]
    given = []
    for one in recorded:
        number, response = at[one["prompt"]], one["response"]
        other = rows[(number + OTHER_PROMPT) % len(rows)]
        given += [
            Given(row=rows[number], response=change(response), change=name)
            for name, change in CHANGES.items()
        ]
        given.append(Given(row=other, response=response, change="another prompt"))
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "given.jsonl"
        with file.open("w", encoding="utf-8") as work:
            for one in given:
                work.write(json.dumps({**one.row, "response": one.response}) + "\n")
        command = [arguments.python, "-c", _PUBLISHER, str(file)]
        started = time.perf_counter()
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        theirs_s = time.perf_counter() - started
    published = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[[")]

    n_judged, n_passed, differences, ours_s = Counter(), Counter(), [], 0.0
    for one, (strict, loose) in zip(given, published, strict=True):
        for rule, judge, verdicts in (
            ("strict", follows, strict),
            ("loose", follows_loosely, loose),
        ):
            asked = zip(one.row["instruction_id_list"], one.row["kwargs"], verdicts, strict=True)
            for kind, raw, theirs in asked:
                known = {name: value for name, value in raw.items() if value is not None}
                started = time.perf_counter()
                own = judge(kind, known, one.response)
                ours_s += time.perf_counter() - started
                n_judged[one.change, rule] += 1
                n_passed[one.change, rule] += own
                if own is not theirs:
                    reason = explained(kind, known, one.response)
                    differences.append((one, rule, kind, known, own, reason))
    print("| answers | rule | instructions | followed | other verdict |\n|---|---|---|---|---|")
    for change, rule in n_judged:
        n_other = sum((d[0].change, d[1]) == (change, rule) for d in differences)
        n, passed = n_judged[change, rule], n_passed[change, rule]
        print(f"| {change} | {rule} | {n} | {passed} | {n_other} |")
    print(f"\nours {ours_s:.1f} s, lm-eval {theirs_s:.1f} s with its imports\n")
    print("| prompt | answer | rule | instruction | ours | reason |\n|---|---|---|---|---|---|")
    for one, rule, kind, known, own, reason in differences:
        said = reason or "UNEXPLAINED"
        print(f"| {one.row['key']} | {one.change} | {rule} | {kind} {known} | {own} | {said} |")
    return 0 if all(difference[-1] for difference in differences) else 1


if __name__ == "__main__":
    raise SystemExit(main())
