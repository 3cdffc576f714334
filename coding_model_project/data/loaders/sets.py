"""The table of public data sets: names, columns, files.

A row of the table gives a set's name, licence, hub repository, the columns of a problem's fields and its
splits with their published number of rows. What a set says otherwise is a function of `quirks`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from coding_model_project.data.loaders import (
    bigcodebench,
    cruxeval,
    evalplus,
    humaneval,
    humaneval_x,
    mbpp,
    quirks,
)
from coding_model_project.data.loaders.base import (
    Part,
    Published,
    ToProblem,
)
from coding_model_project.data.loaders.evalplus import EvalPlusLoader
from coding_model_project.data.loaders.forms import VERL
from coding_model_project.data.loaders.gsm8k_5shot import FewShotLoader
from coding_model_project.data.loaders.rows import OUTPUT_KB, SLOW, Form
from coding_model_project.data.loaders.table import TableLoader
from coding_model_project.types import Limits, Predicted

_STDIN = Limits(output_kb=OUTPUT_KB)
_NEEDED = ("statement", "tests", "truth", "answer")

Splits = Mapping[str, int | None]
"""Published number of rows by split; None if unknown."""


def _set(
    name: str,
    licence: str,
    hub: str | None,
    columns: Mapping[str, str],
    splits: Splits | tuple[Part, ...],
    files: tuple[str, ...] = (),
    *,
    tests: str,
    needed: tuple[str, ...] | None = None,
    optional: tuple[str, ...] = (),
    words: Mapping[str, str] | None = None,
    config: str | None = None,
    hub_file: str | None = None,
    revision: str | None = None,
    whole: bool = False,
    once: bool = False,
    **form: Any,
) -> TableLoader:
    """Return the loader of a set whose rows `Form` reads.

    Args:
        files: names of its files, with {split}; those of the hub are searched for in any case.
        needed: the required columns; by default those of the statement and the tests.
        optional: columns that only `prepare` reads.
        words: the publisher's names of splits that have other names here.
        form: other fields of `Form`.
    """
    words = words or {}
    parts = splits if isinstance(splits, tuple) else tuple(
        Part(
            split=split,
            files=tuple(file.format(split=words.get(split, split)) for file in files),
            n_rows=n_rows,
            config=config,
            hub_split=words.get(split),
            hub_file=hub_file and hub_file.format(split=split),
        )
        for split, n_rows in splits.items()
    )  # fmt: skip
    heads = [
        one.partition(".")[0]
        for column in columns.values()
        for one in re.split(r"[+|]", column)
        if not one.startswith("_")
    ]
    required = needed or tuple(
        one.partition(".")[0]
        for field in _NEEDED
        for one in columns.get(field, "").split("+")
        if one and "|" not in one
    )
    published = Published(
        name=name,
        licence=licence,
        fields=required,
        optional=tuple(dict.fromkeys((*heads, *optional))),
        parts=parts,
        hub=hub,
        revision=revision,
        whole=whole,
        tests=tests,
    )
    return TableLoader(
        published=published,
        to_problem=Form(name=name, columns=columns, **form),
        once=once,
    )


# ── the table ─────────────────────────────────────────────────────────────────────────────────────

_APPS = {
    "statement": "question", "tests": "input_output", "gold": "solutions", "starter": "starter_code",
    "difficulty": "difficulty",
}  # fmt: skip
_CCPLUS = {
    "id": "id", "statement": "_statement", "tests": "test_cases", "checker": "checker",
    "time_limit": "time_limit", "memory_limit": "memory_limit", "gold": "correct_submissions",
    "bad": "incorrect_submissions",
}  # fmt: skip
_LCB = {
    "id": "question_id", "statement": "question_content", "starter": "starter_code",
    "public": "public_test_cases", "tests": "private_test_cases", "entry_point": "metadata.func_name",
    "difficulty": "difficulty", "date": "contest_date", "tags": "platform",
}  # fmt: skip
_PRIME = {
    "id": "problem_id", "statement": "prompt", "truth": "verification_info", "ability": "_kind",
    "gold": "gold_standard_solution", "tags": "source",
}  # fmt: skip
_RLVR = {
    "id": "id", "statement": "messages", "truth": "ground_truth", "ability": "dataset", "tags": "dataset",
}  # fmt: skip
SIZES = ("1x", "2x", "3x", "4x", "5x")
LCB_ROWS = (400, 111, 101, 101, 167, 175)
"""Number of rows that each release of LiveCodeBench adds; v6 holds 1,055."""


def _codecontests_plus_set(size: str) -> TableLoader:
    files = ("ccplus_{size}/*.parquet", "{size}/*.parquet", "codecontests_plus_{size}.parquet",
             "codecontests_plus_{size}.jsonl")  # fmt: skip
    return _set(
        "codecontests_plus", "CC-BY-4.0", "ByteDance-Seed/Code-Contests-Plus", _CCPLUS,
        (Part(split="train", files=tuple(one.format(size=size) for one in files), n_rows=11_690,
              config=size),),
        needed=("id", "description", "test_cases"), optional=("title",), whole=True,
        tests="standard input, checkers", id="{id}", limits=_STDIN, prepare=quirks.codecontests_plus,
    )  # fmt: skip


def _livecodebench_set(release: int | None) -> TableLoader:
    """Return all rows up to a release; None takes the existing files (on the hub: all)."""
    parts = []
    for number in range(1, (release or len(LCB_ROWS)) + 1):
        file = f"test{number if number > 1 else ''}.jsonl"
        files = (file, f"code_generation_lite/{file}")
        parts.append(Part(split="test", files=files, n_rows=LCB_ROWS[number - 1], hub_file=file))
    loader = _set(
        "livecodebench", "see its card: problems belong to the contests' owners",
        "livecodebench/code_generation_lite", _LCB, tuple(parts), tests="standard input, calls",
        needed=("question_content", "question_id", "starter_code", "public_test_cases",
                "private_test_cases", "metadata"),
        revision="0fe84c3912ea0c4d4a78037083943e8f0c4dd505", whole=release is not None,
        id="{id}", prepare=quirks.livecodebench, tolerant=True,
        limits=replace(SLOW, memory_mb=1024),
    )  # fmt: skip
    name = f"livecodebench_v{release}" if release else "livecodebench"
    return replace(loader, published=replace(loader.published, name=name))


def _ifeval(name: str, hub: str, licence: str, n_rows: int, files: tuple[str, ...]) -> TableLoader:
    return _set(
        name, licence, hub, {"id": "key", "statement": "prompt", "truth": "_truth"},
        (Part(split="test", files=files, n_rows=n_rows, config=name, hub_split="train"),),
        needed=("key", "prompt", "instruction_id_list", "kwargs"), tests="instructions", whole=True,
        id="{id}", prepare=quirks.instructions,
    )  # fmt: skip


def _benchmark(
    name: str, licence: str, hub: str | None, fields: tuple[str, ...], part: Part, tests: str,
    to_problem: ToProblem, revision: str | None = None, **more: Any,
) -> TableLoader:  # fmt: skip
    """Return the loader of a set with its own conversion of rows."""
    splits = more.pop("splits", ())
    published = Published(
        name=name, licence=licence, fields=fields, parts=(part,), hub=hub, revision=revision,
        tests=tests, row_splits=splits, split=more.pop("only", None),
    )  # fmt: skip
    return TableLoader(published=published, to_problem=to_problem, **more)


def _mbpp(name: str, to_problem: Callable[..., Any], full: bool, **more: Any) -> TableLoader:
    fields = (
        ("text", "test_setup_code", "challenge_test_list") if full else ("prompt", "test_imports")
    )
    files = ("mbpp.jsonl", "full/*.parquet") if full else (
        "sanitized-mbpp.json", "sanitized/*.parquet", "mbpp_sanitized.jsonl",
    )  # fmt: skip
    part = Part(
        split=None, files=files, n_rows=974 if full else 427, config="full" if full else "sanitized",
        hub_split="train+test+validation+prompt",
    )  # fmt: skip
    return _benchmark(
        name, "CC-BY-4.0", "google-research-datasets/mbpp",
        ("task_id", fields[0], "code", "test_list", *fields[1:]), part, "asserts", to_problem,
        "4bb6404fdc6cacfda99d4ac4205087b89d32030c",
        splits=("train", "validation", "test", "prompt"), **more,
    )  # fmt: skip


def _bigcodebench(name: str, hub: str, prompt: str, n_rows: int) -> TableLoader:
    folder = hub.split("/")[-1]
    version = bigcodebench.VERSION
    files = (f"{folder}/data/{version}-*.parquet", f"{folder}-{version}.jsonl")
    return _benchmark(
        name, "Apache-2.0", hub, bigcodebench.FIELDS,
        Part(split="test", files=files, n_rows=n_rows, hub_split=version), "a harness",
        partial(bigcodebench.problem, name, prompt),
    )  # fmt: skip


def _humaneval_x(published: str, language: str) -> TableLoader:
    files = (
        f"humaneval_x_{published}.jsonl.gz",
        f"humaneval-x/data/{published}/data/humaneval.jsonl",
        f"humaneval-x/{published}/data/humaneval_{published}.jsonl.gz",
    )
    hub_file = f"data/{published}/data/humaneval.jsonl"
    return _benchmark(
        f"humaneval_x_{published}", "Apache-2.0", "zai-org/humaneval-x",
        ("task_id", "prompt", "declaration", "canonical_solution", "test"),
        Part(split="test", files=files, n_rows=164, hub_file=hub_file), "a harness",
        partial(humaneval_x.problem, language),
    )  # fmt: skip


def _cruxeval(of: Predicted) -> TableLoader:
    files = ("cruxeval.jsonl", "cruxeval/data/cruxeval.jsonl", "cruxeval/test.jsonl")
    return _benchmark(
        f"cruxeval_{of[0]}", "MIT", "cruxeval-org/cruxeval", ("code", "input", "output", "id"),
        Part(split="test", files=files, n_rows=800, hub_file="test.jsonl"), "predictions",
        partial(cruxeval.problem, of),
    )  # fmt: skip


def _evalplus(
    name: str, stem: str, n_rows: int, to_problem: ToProblem, own: tuple[str, ...] = ()
) -> EvalPlusLoader:
    fields = ("task_id", "prompt", "entry_point", "canonical_solution", *own)
    files = (f"{stem}.jsonl.gz", f"{stem}*.jsonl*")
    return EvalPlusLoader(
        table=_benchmark(
            name, "Apache-2.0", None, (*fields, "base_input", "plus_input", "atol"),
            Part(split="test", files=files, n_rows=n_rows), "calls", to_problem,
        )
    )  # fmt: skip


GSM8K = _set(
    "gsm8k", "MIT", "openai/gsm8k", {"statement": "question", "answer": "_answer", "gold": "answer"},
    {"train": 7_473, "test": 1_319},
    ("gsm8k/{split}.jsonl", "grade_school_math/data/{split}.jsonl", "gsm8k/main/{split}-*.parquet",
     "main/{split}-*.parquet"),
    needed=("question", "answer"), tests="answers", config="main",
    revision="740312add88f781978c0658806c59bc2815b9866", prepare=quirks.ENDS_IN_HASHES,
)  # fmt: skip
_MATH = {
    "statement": "problem", "answer": "_answer", "gold": "solution", "difficulty": "level",
    "tags": "type|subject",
}  # fmt: skip

SETS: dict[str, TableLoader | EvalPlusLoader | FewShotLoader] = {
    "acecode": _set(
        "acecode", "MIT", "TIGER-Lab/AceCode-87K",
        {"id": "id", "statement": "question", "tests": "test_cases", "tags": "source"},
        {"train": 87_149}, ("AceCode-87K/data/{split}-*.parquet", "acecode.jsonl"),
        tests="asserts", id="{id}", limits=SLOW,
    ),
    "apps": _set(
        "apps", "MIT", "codeparrot/apps", {"id": "problem_id|id", **_APPS},
        {"train": 5_000, "test": 5_000},
        ("apps/{split}.jsonl", "apps/all/{split}-*.parquet", "apps_{split}.jsonl",
         "apps_{split}.parquet"),
        needed=("question", "input_output", "solutions"), tests="standard input, calls",
        hub_file="{split}.jsonl", id="{split}/{id}", limits=SLOW,
    ),
    "big_math": _set(
        "big_math", "Apache-2.0", "SynthLabsAI/Big-Math-RL-Verified",
        {"statement": "problem", "answer": "answer", "tags": "source+domain"},
        {"train": None}, ("Big-Math-RL-Verified/data/{split}-*.parquet", "big_math.jsonl"),
        tests="answers",
    ),
    **{
        f"{name}{kind}": _bigcodebench(f"{name}{kind}", hub, prompt, n_rows)
        for name, hub, n_rows in (
            ("bigcodebench", "bigcode/bigcodebench", 1140),
            ("bigcodebench_hard", "bigcode/bigcodebench-hard", 148),
        )
        for kind, prompt in (("", "instruct_prompt"), ("_complete", "complete_prompt"))
    },
    "codecontests": _set(
        "codecontests", "CC-BY-4.0", "deepmind/code_contests",
        {
            "statement": "description", "public": "public_tests",
            "tests": "private_tests+generated_tests", "gold": "solutions",
            "bad": "incorrect_solutions", "difficulty": "cf_rating", "tags": "cf_tags",
            "time_limit": "time_limit", "memory_limit": "memory_limit_bytes",
        },
        {"train": 13_328, "validation": 117, "test": 165},
        ("data/{split}-*.parquet", "codecontests_{split}.parquet", "codecontests_{split}.jsonl"),
        needed=("name", "description", "public_tests", "private_tests", "generated_tests"),
        optional=("input_file", "output_file"), words={"validation": "valid"},
        revision="802411c3010cb00d1b05bad57ca77365a3c699d6", tests="standard input",
        limits=_STDIN, prepare=quirks.codecontests,
    ),
    "codecontests_plus": _codecontests_plus_set("1x"),
    **{f"codecontests_plus_{size}": _codecontests_plus_set(size) for size in SIZES},
    "codeforces": _set(
        "codeforces", "CC-BY-4.0", "open-r1/codeforces",
        {
            "id": "id", "statement": "_statement", "public": "examples", "tests": "_hidden",
            "checker": "checker", "difficulty": "rating", "tags": "tags+_cut",
            "time_limit": "time_limit", "memory_limit": "memory_limit",
        },
        {"train": 9_556, "test": 468}, ("data/{split}-*.parquet", "codeforces_{split}.jsonl"),
        needed=("description", "official_tests", "official_tests_complete", "input_mode"),
        optional=("input_format", "output_format", "note", "generated_checker"),
        tests="standard input, checkers", id="{id}", limits=_STDIN, prepare=quirks.codeforces,
    ),
    "cruxeval_i": _cruxeval(Predicted.input),
    "cruxeval_o": _cruxeval(Predicted.output),
    "dapo": _set(
        "dapo", "Apache-2.0", "BytedTsinghua-SIA/DAPO-Math-17k",
        {"id": "extra_info.index", "statement": "prompt", "truth": "reward_model.ground_truth"},
        (Part(split="train", files=("DAPO-Math-17k/data/dapo-math-17k.parquet", "dapo-math-17k.parquet"),
              hub_file="data/dapo-math-17k.parquet"),),
        tests="answers", id="{id}", kind="math", once=True,
    ),
    "deepcoder": _set(
        "deepcoder", "MIT", "agentica-org/DeepCoder-Preview-Dataset",
        {
            "statement": "problem", "starter": "starter_code", "tests": "tests", "gold": "solutions",
            "entry_point": "metadata.func_name", "tags": "_config",
        },
        tuple(
            Part(
                split=split, config=config,
                files=(f"{config}/{split}-*.parquet", f"deepcoder_{config}_{split}.jsonl"),
            )
            for config, split in (
                ("primeintellect", "train"), ("taco", "train"), ("lcbv5", "train"),
                ("codeforces", "test"), ("lcbv5", "test"),
            )
        ),
        tests="standard input, calls", id="{config}/{split}/{index}", limits=SLOW,
        prepare=quirks.with_config,
    ),
    "deepscaler": _set(
        "deepscaler", "MIT", "agentica-org/DeepScaleR-Preview-Dataset",
        {"statement": "problem", "answer": "answer", "gold": "solution"},
        (Part(split="train", files=("DeepScaleR-Preview-Dataset/deepscaler.json", "deepscaler.json"),
              hub_file="deepscaler.json"),),
        tests="answers",
    ),
    "eurus": _set(
        "eurus", "MIT", "PRIME-RL/Eurus-2-RL-Data",
        {key: column for key, column in VERL.items() if key != "source"},
        {"train": None, "validation": None}, ("{split}.parquet", "data/{split}-*.parquet"),
        needed=("data_source", "prompt", "reward_model"), tests="standard input, calls, answers",
        limits=SLOW, prepare=quirks.eurus,
    ),
    "gsm8k": GSM8K,
    "gsm8k_5shot": FewShotLoader(
        table=replace(
            GSM8K,
            published=replace(GSM8K.published, name="gsm8k_5shot", parts=GSM8K.published.parts[1:]),
        ),
        examples=GSM8K,
    ),
    "humaneval": _benchmark(
        "humaneval", "MIT", "openai/openai_humaneval",
        ("task_id", "prompt", "canonical_solution", "test", "entry_point"),
        Part(
            split="test", n_rows=164, config="openai_humaneval",
            files=("HumanEval.jsonl.gz", "HumanEval.jsonl", "openai_humaneval/test-*.parquet",
                   "humaneval.jsonl", "humaneval.parquet"),
        ),
        "asserts", humaneval.problem, "7dce6050a7d6d172f3cc5c32aa97f52fa1a2e544",
    ),
    "humaneval_plus": _evalplus("humaneval_plus", "HumanEvalPlus", 164, evalplus.humaneval),
    **{
        f"humaneval_x_{published}": _humaneval_x(published, language)
        for published, language in humaneval_x.LANGUAGES.items()
    },
    "if_multi": _set(
        "if_multi", "ODC-BY-1.0", "allenai/IF_multi_constraints_upto5",
        {"id": "key", "statement": "messages", "truth": "ground_truth"}, {"train": None},
        ("IF_multi_constraints_upto5/data/{split}-*.parquet", "if_multi.jsonl"),
        tests="instructions", whole=True, id="{id}",
    ),
    "ifbench": _ifeval(
        "ifbench", "allenai/IFBench_test", "ODC-BY-1.0", 300,
        ("IFBench_test.jsonl", "ifbench/IFBench_test.jsonl", "IFBench_test/data/train-*.parquet"),
    ),
    "ifeval": _ifeval(
        "ifeval", "google/IFEval", "Apache-2.0", 541,
        ("ifeval_input_data.jsonl", "ifeval/input_data.jsonl", "IFEval/ifeval_input_data.jsonl"),
    ),
    "intellect_3_code": _set(
        "intellect_3_code", "Apache-2.0", "PrimeIntellect/INTELLECT-3-RL",
        {"statement": "question", "tests": "info", "tags": "info.source"},
        {"train": 8_579}, ("INTELLECT-3-RL/code/{split}-*.parquet", "intellect_3_code.jsonl"),
        tests="standard input, calls", config="code", limits=SLOW,
    ),
    "intellect_3_math": _set(
        "intellect_3_math", "Apache-2.0", "PrimeIntellect/INTELLECT-3-RL",
        {"statement": "question", "answer": "answer"},
        {"train": 21_161}, ("INTELLECT-3-RL/math/{split}-*.parquet", "intellect_3_math.jsonl"),
        tests="answers", config="math",
    ),
    "kodcode": _set(
        "kodcode", "CC-BY-NC-4.0", "KodCode/KodCode-V1",
        {
            "id": "question_id", "statement": "question", "tests": "test|test_code", "gold": "solution",
            "entry_point": "_function", "starter": "_declared", "difficulty": "gpt_difficulty",
            "tags": "subset+style",
        },
        {"train": None, "use_with_caution": None},
        ("KodCode-V1/data/{split}-*.parquet", "kodcode_{split}.parquet", "kodcode_{split}.jsonl"),
        needed=("question_id", "question", "solution"), optional=("test_info",), tests="asserts",
        id="{id}", limits=Limits(cpu_s=10.0, wall_s=30.0), prepare=quirks.kodcode,
    ),
    "leetcode": _set(
        "leetcode", "Apache-2.0", "newfacade/LeetCodeDataset",
        {
            "id": "task_id", "statement": "problem_description", "starter": "starter_code",
            "tests": "test", "entry_point": "entry_point", "gold": "completion",
            "difficulty": "difficulty", "date": "estimated_date", "tags": "tags",
        },
        {"train": None, "test": None},
        ("LeetCodeDataset/LeetCodeDataset-{split}.jsonl", "LeetCodeDataset-*-{split}.jsonl*"),
        tests="asserts", id="{id}", limits=SLOW,
    ),
    "livecodebench": _livecodebench_set(None),
    **{f"livecodebench_v{n}": _livecodebench_set(n) for n in range(1, 7)},
    "math": _set(
        "math", "MIT", "DigitalLearningGmbH/MATH-lighteval", _MATH, {"train": 7_500, "test": 5_000},
        ("MATH-lighteval/data/{split}-*.parquet", "MATH/{split}.jsonl"),
        needed=("problem", "solution"), tests="answers", prepare=quirks.ENDS_IN_BOX,
    ),
    "math500": _set(
        "math500", "MIT", "HuggingFaceH4/MATH-500", _MATH, {"test": 500},
        ("MATH-500/test.jsonl", "math500.jsonl"), needed=("problem", "solution", "answer"),
        config="math500", hub_file="test.jsonl", whole=True, tests="answers",
        revision="6e4ed1a2a79af7d8630a6b768ec859cb5af4d3be", prepare=quirks.ENDS_IN_BOX,
    ),
    "mbpp": _mbpp("mbpp", mbpp.full, full=True),
    "mbpp_plus": _evalplus("mbpp_plus", "MbppPlus", 378, evalplus.mbpp, ("assertion",)),
    "mbpp_reg": _mbpp("mbpp_reg", mbpp.regression, full=False, only="test"),
    "mbpp_sanitized": _mbpp("mbpp_sanitized", mbpp.sanitized, full=False),
    "nemotron_code": _set(
        "nemotron_code", "CC-BY-4.0", "nvidia/Nemotron-RL-coding-competitive_coding",
        {
            "id": "hash_id", "statement": "responses_create_params", "tests": "verifier_metadata",
            "tags": "dataset+source",
        },
        {"train": None, "validation": None},
        ("Nemotron-RL-coding-competitive_coding/{split}.jsonl", "nemotron_code_{split}.jsonl"),
        tests="standard input", hub_file="{split}.jsonl", id="{id}", limits=SLOW,
    ),
    "rlvr": _set(
        "rlvr", "ODC-BY-1.0", "allenai/RLVR-GSM-MATH-IF-Mixed-Constraints", _RLVR, {"train": None},
        ("RLVR-GSM-MATH-IF-Mixed-Constraints/data/{split}-*.parquet", "rlvr.jsonl"),
        tests="answers, instructions, asserts", id="{id}", limits=SLOW,
    ),
    "rstar_coder": _set(
        "rstar_coder", "CC-BY-4.0", "microsoft/rStar-Coder",
        {
            "id": "question_id", "statement": "question", "tests": "_tests", "starter": "starter_code",
        },
        {"train": None},
        ("rStar-Coder/seed_testcase/*.parquet", "seed_testcase/*.parquet", "rstar_coder.jsonl"),
        needed=("question", "inputs", "outputs"), optional=("func_name", "fn_name"),
        tests="standard input, calls", config="seed_testcase", id="{id}", limits=SLOW,
        prepare=quirks.pairs,
    ),
    "skywork_code": _set(
        "skywork_code", "see its card", "Skywork/Skywork-OR1-RL-Data",
        {"statement": "prompt", "truth": "reward_model.ground_truth", "tags": "data_source"},
        {"train": None}, ("Skywork-OR1-RL-Data/data/code-*.parquet", "skywork_code.jsonl"),
        tests="asserts, standard input, calls", words={"train": "code"}, kind="code", limits=SLOW,
    ),
    "skywork_math": _set(
        "skywork_math", "see its card", "Skywork/Skywork-OR1-RL-Data",
        {"statement": "prompt", "truth": "reward_model.ground_truth", "tags": "data_source"},
        {"train": None}, ("Skywork-OR1-RL-Data/data/math-*.parquet", "skywork_math.jsonl"),
        tests="answers", words={"train": "math"}, kind="math",
    ),
    "synthetic_1": _set(
        "synthetic_1", "Apache-2.0", "PrimeIntellect/SYNTHETIC-1", _PRIME, {"train": None},
        ("SYNTHETIC-1/data/{split}-*.parquet", "verifiable-coding-problems/data/{split}-*.parquet",
         "synthetic_1.parquet", "synthetic_1.jsonl"),
        needed=("task_type", "prompt", "verification_info", "problem_id"), tests="standard input, calls",
        whole=True, once=True, id="{id}", limits=SLOW,
        prepare=partial(quirks.prime_intellect, {"verifiable_code": "code"}),
    ),
    "synthetic_2": _set(
        "synthetic_2", "Apache-2.0", "PrimeIntellect/SYNTHETIC-2-RL", _PRIME, {"train": None},
        ("SYNTHETIC-2-RL/data/{split}-*.parquet", "synthetic_2.jsonl"),
        needed=("task_type", "prompt", "verification_info", "problem_id"),
        tests="standard input, calls, answers", once=True, id="{id}", limits=SLOW,
        prepare=partial(
            quirks.prime_intellect,
            {"verifiable_code": "code", "prime_rl_code": "code", "verifiable_math": "math"},
        ),
    ),
    "taco": _set(
        "taco", "Apache-2.0", "BAAI/TACO",
        {
            **_APPS, "tags": "source+tags|raw_tags", "time_limit": "time_limit",
            "memory_limit": "memory_limit",
        },
        {"train": 25_443, "test": 1_000},
        ("TACO/ALL/{split}-*.parquet", "TACO/{split}/data-*.arrow", "taco_{split}.parquet",
         "taco_{split}.jsonl"),
        needed=("question", "input_output", "solutions"), optional=("picture_num",), config="ALL",
        tests="standard input, calls", limits=SLOW, prepare=quirks.taco,
    ),
}  # fmt: skip
"""The loader of each set by name."""
