"""Shell scripts that may run data as code."""

import pytest

from coding_model_project.harbor.rooms.shells import runs_data

RUNS = (
    'eval "$x"',
    "cd /app && eval x",
    "out=$(python3 x)\n[[ $out -eq 42 ]] && echo 1",
    "out=$(x); (( out == 42 ))",
    "[[ $(a) -eq 3 ]]",
    "echo $(( $(cat /app/x) + 1 ))",
    "$CMD",
    "X=1 $CMD",
    'x=$(cat f)\nfoo && "$x"',
    "case a in\n a) $x ;;\nesac",
    'trap "$x" EXIT',
    "read n\na[$n]=3",
    "printf -v x y",
    "echo ${!x}",
    "while read n; do (( n > 1 )); done",
)
RUNS_NOT = (
    '[ "$(a)" -eq 3 ] && [ $? -eq 0 ]',
    "[[ $? -eq 0 ]]",
    "code=$?\nif [[ $code -eq 0 ]]; then x; fi",
    "n=0; for i in 1 2 3; do ((n++)); n=$((n+1)); done; [[ $n -eq 3 ]]",
    "for ((i=0;i<3;i++)); do x; done",
    "PY=python3\n$PY x",
    'echo "$(date)" "$x" && if [[ "$a" == "$b" ]]; then x; fi',
    'echo "eval $x; y" # eval b',
    'run a \\\n    "$x" "$y"',
    'trap "rm -f /tmp/x" EXIT',
    "cat <<EOF\n$(x)\nEOF\n",
    "python3 - <<'PY'\neval(x)\nPY\n",
)


@pytest.mark.parametrize("script", RUNS)
def test_a_construct_that_runs_data_is_found(script):
    assert runs_data(script)


@pytest.mark.parametrize("script", RUNS_NOT)
def test_ordinary_scripts_run_none(script):
    assert runs_data(script) is None
