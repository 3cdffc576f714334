"""Hand-written rows of every source in its publisher's schema."""

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
    """Pack private tests like LiveCodeBench."""
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

TACO_STDIN = {
    "question": "Read a number and print twice that number.",
    "solutions": json.dumps(["print(2 * int(input()))", "n = int(input())\r\nprint(n + n)"]),
    "starter_code": "",
    "input_output": json.dumps({"inputs": ["1\n", "5\n"], "outputs": ["2\n", "10\n"]}),
    "difficulty": "MEDIUM_HARD",
    "raw_tags": "['Implementation']",
    "name": None,
    "source": "codeforces",
    "tags": "['Mathematics']",
    "skill_types": "[]",
    "url": "https://example.org/1",
    "Expected Auxiliary Space": None,
    "time_limit": "2.0 seconds",
    "date": "2020-01-01",
    "picture_num": "0",
    "memory_limit": "1.0 gigabytes",
    "Expected Time Complexity": None,
}
TACO_CALL = {
    **TACO_STDIN,
    "question": "Count the words.",
    "solutions": json.dumps(["def count(words):\n    return {len(words): 1}"]),
    "starter_code": "def count(words):\n\t",
    "input_output": json.dumps(
        {"fn_name": "count", "inputs": [[["a", "b"]], [[]]], "outputs": [[{"2": 1}], [{"0": 1}]]}
    ),
    "source": "codewars",
    "time_limit": None,
    "memory_limit": None,
    "picture_num": None,
}

APPS_STDIN = {
    "problem_id": 17,
    "question": "Double a number.",
    "solutions": json.dumps(["print(2 * int(input()))"]),
    "input_output": json.dumps({"inputs": [["1"], "5\n"], "outputs": [["2"], "10\n"]}),
    "difficulty": "interview",
    "url": "https://example.org/17",
    "starter_code": "",
}
APPS_CALL = {
    **APPS_STDIN,
    "problem_id": 18,
    "question": "Add two numbers.",
    "input_output": json.dumps({"fn_name": "add", "inputs": [[1, 2], [3, 4]], "outputs": [3, 7]}),
    "solutions": json.dumps(["class Solution:\n    def add(self, a, b):\n        return a + b"]),
    "starter_code": "class Solution:\n    def add(self, a: int, b: int) -> int:\n        ",
}

KODCODE = {
    "version": "v1.1",
    "style": "instruct",
    "subset": "Algorithm",
    "question_id": "Algorithm_1_I",
    "question": "Write a function that halves a number of at least 0.",
    "solution": (
        "def halve(x):\n    if x < 0:\n        raise ValueError('below 0')\n    return x / 2\n"
    ),
    "test": (
        "import math\nimport pytest\nfrom solution import halve\n\nCASES = [(2, 1), (3, 1.5)]\n\n"
        "def test_cases():\n    for given, right in CASES:\n"
        "        assert math.isclose(halve(given), right)\n\n"
        "def test_negative():\n    with pytest.raises(ValueError, match='below'):\n        halve(-1)\n\n"
        "if __name__ == '__main__':\n    pytest.main()\n"
    ),
    "test_info": [
        {
            "docstring": "Halves.",
            "function_declaration": "def halve(x):",
            "function_name": "halve",
            "parameter_list": "(x)",
        }
    ],
    "gpt_pass_sequence": [1, 0],
    "gpt_pass_trial_num": 1,
    "gpt_difficulty": "medium",
    "gpt_pass_percentage": 0.5,
}

_SYNTHETIC_1 = {
    "response_id": "vcp_1_a",
    "source": "apps",
    "in_source_id": "1",
    "hf_dataset_name": "PrimeIntellect/verifiable-coding-problems",
    "task_type": "verifiable_code",
    "llm_response": "I think.",
    "score": 1.0,
    "verification_result_info": "{}",
    "metadata": "{}",
}
SYNTHETIC_1_STDIN = {
    **_SYNTHETIC_1,
    "problem_id": "vcp_1",
    "prompt": (
        "Solve the following coding problem using the programming language python:\n\n"
        "Double a number.\n\nNow solve the problem and return the code."
    ),
    "gold_standard_solution": "```python\nprint(2 * int(input()))\n```",
    "verification_info": json.dumps(
        {
            "language": "python",
            "test_cases": [{"type": "stdin_stdout", "input": "1\n", "output": "2\n"}],
        }
    ),
}
SYNTHETIC_1_CALL = {
    **SYNTHETIC_1_STDIN,
    "problem_id": "vcp_2",
    "prompt": (
        "Solve the following coding problem using the programming language python:\n\n"
        "Add two numbers."
    ),
    "gold_standard_solution": "def add(a, b):\n    return a + b",
    # as Python writes it, which some rows have
    "verification_info": str(
        {
            "language": "python",
            "test_cases": [
                {"type": "function_call", "fn_name": "add", "input": [1, 2], "output": [3]},
                {"type": "function_call", "fn_name": "add", "input": [3, 4], "output": [7]},
            ],
        }
    ),
}

DEEPCODER_PRIME = {
    "problem": "Add two numbers.",
    "tests": json.dumps(
        [{"type": "function_call", "fn_name": "add", "input": [1, 2], "output": [3]}]
    ),
}

VERL = {
    "data_source": "taco",
    "prompt": [{"role": "user", "content": "Double a number."}],
    "ability": "code",
    "reward_model": {
        "style": "rule",
        "ground_truth": json.dumps({"inputs": ["1\n"], "outputs": ["2\n"]}),
    },
    "extra_info": {"split": "train", "index": 0},
}
VERL_CALL = {
    **VERL,
    "data_source": "apps",
    "reward_model": {
        "style": "rule",
        "ground_truth": json.dumps(
            {"fn_name": "add", "inputs": ["1\n2", '{"1": 2}\n"a"'], "outputs": ["3", "[4]"]}
        ),
    },
}
VERL_MATH = {
    **VERL,
    "data_source": "openai/gsm8k",
    "ability": "math",
    "reward_model": {"style": "rule", "ground_truth": "72"},
}
