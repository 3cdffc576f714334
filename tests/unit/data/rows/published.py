"""One row or two of every source, written by hand in its publisher's schema."""

import base64
import json
import pickle
import zlib

CODECONTESTS = {
    "name": "9999_A. Twice",
    "description": "Read a number and print twice that number.\n",
    "public_tests": {"input": ["1\n"], "output": ["2\n"]},
    "private_tests": {"input": ["3\n", "0\n"], "output": ["6\n", "0\n"]},
    "generated_tests": {"input": ["-5\n"], "output": ["-10\n"]},
    "source": 2,
    "difficulty": 7,
    "solutions": {
        "language": [2, 3, 1, 3],
        "solution": [
            "int main(){}",
            "print(2 * int(input()))",
            "print 2 * input()",
            "n = int(input())\nprint(n + n)",
        ],
    },
    "incorrect_solutions": {
        "language": [3, 4],
        "solution": ["print(int(input()) ** 2)", "class A{}"],
    },
    "cf_contest_id": 9999,
    "cf_index": "A",
    "cf_rating": 800,
    "cf_tags": ["math", ""],
    "time_limit": {"seconds": 1, "nanos": 500_000_000},
    "memory_limit_bytes": 1_073_741_824,
    "input_file": "",
    "output_file": "",
}

CODECONTESTS_PLUS = {
    "source": "Codeforces",
    "id": "9999_A",
    "title": "Twice",
    "description": "Read a number and print twice that number.",
    "time_limit": 2000,
    "memory_limit": 256,
    "validator": "int main(){}",
    "generator": "int main(){}",
    "generator_cmd": "./gen 1",
    "checker": "// wcmp: compare sequences of tokens\nint main() { ouf.readWord(); ans.readWord(); }",
    "correct_submissions": [
        {"language": "cpp", "code": "int main(){}"},
        {"language": "py3", "code": "print(2 * int(input()))"},
    ],
    "incorrect_submissions": [{"language": "py3", "code": "print(0)"}],
    "test_cases": [{"input": "1\n", "output": "2\n"}, {"input": "4\n", "output": "8\n"}],
    "true_positive_rate": 1.0,
    "true_negative_rate": 1.0,
}

HUMANEVAL = {
    "task_id": "HumanEval/999",
    "prompt": (
        "import math\n\n\ndef halve(x: int):\n    return x // 2\n\n\n"
        'def quarter(x: int):\n    """ A quarter, rounded down.\n    >>> quarter(9)\n    2\n    """\n'
    ),
    "entry_point": "quarter",
    "canonical_solution": "    return halve(halve(x))\n",
    "test": "def check(candidate):\n    assert candidate(9) == halve(4)\n    assert candidate(3) == 0\n",
}

MBPP = {
    "text": "Write a function to add a tax.",
    "code": "class Rate:\r\n    pass\r\ndef taxed(x):\r\n    return add(x, RATE)",
    "task_id": 700,
    "test_setup_code": "RATE = 2",
    "test_list": ["assert set([taxed(1)]) == {3}", "assert taxed(0) == 2"],
    "challenge_test_list": ["assert taxed(-2) == 0"],
}

MBPP_SANITIZED = {
    "source_file": "a.ipynb",
    "task_id": 11,
    "prompt": "Write a function to find a root.",
    "code": "import math\ndef root(x):\n    return math.sqrt(x)",
    "test_imports": ["import math"],
    "test_list": ["assert math.isclose(root(4), 2)"],
}

_FUNCTIONAL = [{"input": '[1, 2]\n"a"', "output": "3", "testtype": "functional"}]
_STDIN = [{"input": "1 2\n", "output": "3\n", "testtype": "stdin"}]


def packed(value):
    """As LiveCodeBench packs private tests."""
    return base64.b64encode(zlib.compress(pickle.dumps(json.dumps(value)))).decode()


_LCB = {
    "question_title": "Sum",
    "question_content": "Add what you are given.",
    "platform": "leetcode",
    "question_id": "9001",
    "contest_id": "weekly-1",
    "contest_date": "2024-01-01T00:00:00",
    "difficulty": "medium",
}
LIVECODEBENCH_CALL = {
    **_LCB,
    "starter_code": "class Solution:\n    def total(self, xs: List[int], how: str) -> int:\n        ",
    "public_test_cases": json.dumps(_FUNCTIONAL),
    "private_test_cases": packed(_FUNCTIONAL * 2),
    "metadata": json.dumps({"func_name": "total"}),
}
LIVECODEBENCH_STDIN = {
    **_LCB,
    "question_id": "abc300_a",
    "platform": "atcoder",
    "starter_code": "",
    "public_test_cases": json.dumps(_STDIN),
    "private_test_cases": json.dumps(_STDIN),
    "metadata": "{}",
}

DEEPCODER_LIST = {
    "problem": "Add two numbers.",
    "solutions": ["```python\nprint(sum(map(int, input().split())))\n```"],
    "tests": json.dumps([{"type": "stdin_stdout", "input": "1 2\n", "output": "3\n"}]),
}
DEEPCODER_TACO = {
    "problem": "Add two numbers.",
    "tests": json.dumps({"fn_name": "add", "inputs": [[1, 2], [3, 4]], "outputs": [[3], [7]]}),
}
DEEPCODER_LCB = {
    "problem": "Add what you are given.",
    "starter_code": "class Solution:\n    def total(self, xs, how): ...",
    "tests": json.dumps(_FUNCTIONAL),
    "metadata": {"func_name": "total"},
}

CODEFORCES = {
    "id": "9999/A",
    "title": "Twice",
    "description": "Double a number.",
    "input_format": "One integer.",
    "output_format": "Twice that.",
    "note": None,
    "examples": [{"input": "1\n", "output": "2\n"}],
    "official_tests": [{"input": "1\n", "output": "2\n"}, {"input": "5\n", "output": "10\n"}],
    "official_tests_complete": False,
    "generated_checker": None,
    "time_limit": 1.0,
    "memory_limit": 256.0,
    "input_mode": "stdio",
    "rating": 800,
    "tags": ["math"],
}

EURUS_CODE = {
    "data_source": "taco",
    "prompt": [
        {"role": "system", "content": "You reason."},
        {
            "role": "user",
            "content": "Double a number.\n\nWrite Python code to solve the problem. Present the code in",
        },
    ],
    "ability": "code",
    "reward_model": {
        "style": "rule",
        "ground_truth": json.dumps({"inputs": ["1\n", ["2", "3"]], "outputs": ["2\n", "4\n6"]}),
    },
    "extra_info": {"split": "train", "index": 0},
}
EURUS_MATH = {
    **EURUS_CODE,
    "data_source": "numina_olympiads",
    "ability": "math",
    "reward_model": {"style": "rule", "ground_truth": "\\frac{1}{2}"},
}

GSM8K = {"question": "How many?", "answer": "3*400=<<3*400=1200>>1200 in all.\n#### 1,200"}
MATH = {
    "problem": "Halve one.",
    "level": "Level 3",
    "type": "Algebra",
    "solution": "It is not $\\boxed{1}$ but $\\boxed{\\frac{1}{2}}$.",
}
MATH_500 = {
    "problem": "Halve one.",
    "solution": "$\\boxed{\\frac{1}{2}}$",
    "answer": "\\frac{1}{2}",
    "subject": "Algebra",
    "level": 3,
    "unique_id": "test/algebra/1.json",
}
