"""Modules load only the libraries they need: a light judge, a command line that answers at once."""

import subprocess
import sys

HEAVY = {"hydra", "numpy", "pyarrow", "pydantic", "scipy"}
TRAINING = {"ray", "torch", "transformers", "verl", "vllm"}
OTHER_GRADERS = {
    "coding_model_project.harbor",
    "coding_model_project.harbor.grader",
    "coding_model_project.grading.instructions",
    "coding_model_project.grading.maths.grader",
    "math_verify",
}


def loaded(code: str) -> set[str]:
    """The modules that a fresh interpreter has after running `code`."""
    listing = f"{code}\nimport sys\nsys.stderr.write('\\n'.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", listing], capture_output=True, check=True)
    return set(done.stderr.decode().splitlines())


def together(*modules: str) -> str:
    return "\n".join(f"import coding_model_project.{module}" for module in modules)


def test_judging_programs_needs_neither_numpy_nor_pydantic_nor_other_graders():
    found = loaded(
        together("api", "grading.judge", "data.loaders", "data.problems", "grading.rewards")
    )
    assert found & (HEAVY | TRAINING | OTHER_GRADERS) == set()


def test_what_comes_with_an_extra_is_imported_where_it_is_used():
    comparison = "evaluation.tables"
    found = loaded(together("cli", "data.dedup.govern", comparison, "reports", "doctor"))
    assert found & ({"fastapi", "pyarrow", "scipy"} | TRAINING) == set()


def test_the_package_itself_is_imported_at_once():
    """The sandbox's processes import it too."""
    code = "import time; s = time.process_time(); import coding_model_project as c; c.__file__; "
    loaded(code + "assert time.process_time() - s < 0.1")
