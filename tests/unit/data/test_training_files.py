"""Training files hold permitted rows in the requested order and shares, with a manifest."""

import json
from collections import Counter

import pyarrow.parquet as pq
import pytest

from coding_model_project import cli
from coding_model_project.data.governance import Role
from coding_model_project.data.problems import read_problems, write_problems
from coding_model_project.data.training.mixing import (
    mixed,
    mixed_in_order,
    ordered,
    parse_mixture,
    read_order,
)
from coding_model_project.data.training.training_files import Plan, write_training_files
from coding_model_project.errors import ConfigError
from coding_model_project.types import Problem, Stdin, Test
from tests.synthetic_evaluations import write_evaluation
from tests.tables import tables

CASES = tables("data")


def problem(name, split="train", **fields):
    tests = (Test(input=Stdin("1"), expected="1"),)
    statement = f"Do {name}."
    return Problem(
        id=name,
        split=split,
        **{"statement": statement, "tests": tests, "gold": ("print(1)",)} | fields,
    )


MINE = [problem(f"mine/{n}") for n in range(8)]
MBPP = [problem(f"mbpp/{n}") for n in range(700, 704)]
YOURS = [problem(f"yours/{n}") for n in range(4)]


def names(*sets):
    return [one.id for several in sets for one in several]


def ids(path):
    return [row["reward_model"]["ground_truth"] for row in pq.read_table(path).to_pylist()]


def test_rows_name_problems_whose_tests_lie_once(tmp_path):
    written = write_training_files([*MINE, *MBPP, *MINE], tmp_path, Plan(seed=3))
    assert written.rows == {"rl_train": 12}
    rows = pq.read_table(tmp_path / "rl_train.parquet").to_pylist()
    assert {row["data_source"] for row in rows} == {"mine", "mbpp"}
    assert rows[0]["extra_info"]["weight"] == 1.0
    assert "expected" not in json.dumps(rows)
    assert len(read_problems(tmp_path / "problems.jsonl")) == 12
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    assert manifest["counts"] == {"rl_train": 12}
    assert manifest["settings"]["seed"] == 3
    assert set(manifest["sha256"]) == {"problems.jsonl", "rl_train.parquet"}


def test_the_same_seed_gives_the_same_order(tmp_path):
    orders = []
    for folder, seed in (("a", 1), ("b", 1), ("c", 2)):
        write_training_files(MINE, tmp_path / folder, Plan(seed=seed))
        orders.append(ids(tmp_path / folder / "rl_train.parquet"))
    assert orders[0] == orders[1] != orders[2]
    assert sorted(orders[0]) == sorted(orders[2])


def test_splits_go_into_files_of_their_own(tmp_path):
    others = [
        problem("mine/v", "validation"),
        problem("mine/d", "dev"),
        problem("mine/e", "eval"),
        problem("mbpp/20", "test"),
        problem("mine/t", "test"),
        problem("mine/h", "holdout"),
    ]
    written = write_training_files([*MINE, *others], tmp_path, Plan())
    assert written.rows == {"rl_train": 8, "rl_validation": 3, "rl_test": 3}
    assert not written.notes


def test_training_problems_that_may_be_held_out_are_named(tmp_path):
    others = [problem("mine/t", "test", statement="Do  mine/3."), problem("mine/p", "public")]
    copy, split = write_training_files([*MINE, *others], tmp_path, Plan()).notes
    assert "mine/3 and mine/t" in copy
    assert "'public'" in split


def test_sft_rows_show_gold_beside_the_others(tmp_path):
    without = [problem("mine/x", gold=()), problem("mine/v", "validation", gold=())]
    written = write_training_files([*MINE, *without], tmp_path, Plan(sft=True))
    assert written.rows == {"rl_train": 9, "rl_validation": 1, "sft_train": 8}
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    assert set(manifest["sha256"]) == {"problems.jsonl"} | {
        f"{one}.parquet" for one in written.rows
    }
    with pytest.raises(ConfigError, match="--sft: no problem has a gold solution"):
        write_training_files(without, tmp_path / "other", Plan(sft=True))
    (first, *_) = pq.read_table(tmp_path / "sft_train.parquet").to_pylist()
    assert first["messages"][-1]["content"] == "```python\nprint(1)\n```"


@pytest.mark.parametrize("split", ["test", "train"])
def test_what_is_test_only_is_refused_whatever_split_it_claims(tmp_path, split):
    with pytest.raises(ConfigError, match="test only"):
        write_training_files([problem("humaneval/1", split)], tmp_path, Plan())
    with pytest.raises(ConfigError, match="test only"):
        write_training_files([*MINE, problem("humaneval/1", "train")], tmp_path, Plan())
    assert not (tmp_path / "rl_train.parquet").exists()


def test_one_id_for_two_problems_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="mine/1"):
        write_training_files([*MINE, problem("mine/1", statement="Other.")], tmp_path, Plan())


# ── mixtures, curricula, lengths ──────────────────────────────────────────────────────────────────


def test_mixtures_by_weight():
    chosen = mixed(names(MINE, MBPP), {"mine": 1, "mbpp": 1}, None, 0)
    assert Counter(name.split("/")[0] for name in chosen) == {"mine": 4, "mbpp": 4}
    assert len(set(chosen)) == 8, "without a size nothing repeats"
    chosen = mixed(names(MINE, MBPP), {"mine": 1, "mbpp": 3}, 40, 0)
    counts = Counter(chosen)
    assert sum(n for name, n in counts.items() if name.startswith("mbpp")) == 30
    assert max(counts.values()) - min(n for i, n in counts.items() if i.startswith("mbpp")) <= 1
    assert mixed(names(MINE), {"mine": 1}, 5, 7) == mixed(names(MINE), {"mine": 1}, 5, 7)


@pytest.mark.parametrize("text", ["mine", "mine=x", "mine=-1", "mine=0", ""])
def test_malformed_mixtures(text):
    with pytest.raises(ConfigError, match="--mixture"):
        parse_mixture(text)


def test_a_mixture_names_every_source():
    with pytest.raises(ConfigError, match="mbpp has no weight"):
        mixed(names(MINE, MBPP), {"mine": 1}, None, 0)
    with pytest.raises(ConfigError, match="taco has no problems"):
        mixed(names(MINE), {"mine": 1, "taco": 1}, None, 0)
    chosen = mixed(names(MINE, MBPP), {"mine": 1, "mbpp": 0}, None, 0)
    assert {name.split("/")[0] for name in chosen} == {"mine"}


def test_a_curriculum_is_kept_as_it_is(tmp_path):
    (tmp_path / "o.txt").write_text('mine/5\n\n{"id": "mine/2"}\nmine/5\n')
    order = read_order(tmp_path / "o.txt")
    assert ordered(names(MINE), order) == ["mine/5", "mine/2", "mine/5"]
    written = write_training_files(MINE, tmp_path / "out", Plan(order=tuple(order)))
    assert ids(tmp_path / "out" / "rl_train.parquet") == ["mine/5", "mine/2", "mine/5"]
    assert written.left_out == {"not in the order": 6}
    with pytest.raises(ConfigError, match="mine/99"):
        ordered(names(MINE), ["mine/99"])
    (tmp_path / "o.txt").write_text('mine/5\n{"name": 1}\n')
    with pytest.raises(ConfigError, match=r"o\.txt:2"):
        read_order(tmp_path / "o.txt")


def test_each_source_of_a_mixture_keeps_its_order(tmp_path):
    ids_given = ["mine/5", "mine/2", "mine/1", "mbpp/702", "mbpp/700"]
    named = mixed_in_order(names(MINE, MBPP), {"mine": 2, "mbpp": 1}, 9, 0, ids_given)
    assert [i for i in named if i.startswith("mine")] == ["mine/5", "mine/2", "mine/1"] * 2
    assert [i for i in named if i.startswith("mbpp")] == ["mbpp/702", "mbpp/700", "mbpp/702"]
    shares = [i.split("/")[0] for i in named]
    assert all(shares[at : at + 3].count("mbpp") == 1 for at in (0, 3, 6)), "mixed in each part"
    order = ["mine/3", "mine/1"]
    only_mine = mixed_in_order(names(MINE, MBPP), {"mine": 1, "mbpp": 1}, 4, 0, order)
    assert [name for name in only_mine if name.startswith("mine")] == order
    assert len({name for name in only_mine if name.startswith("mbpp")}) == 2, "shuffled, each once"
    with pytest.raises(ConfigError, match="mine/99"):
        mixed_in_order(names(MINE), {"mine": 1}, None, 0, ["mine/99"])


def test_orders_of_sources_from_an_object_store(tmp_path, monkeypatch, capsys):
    import fsspec

    monkeypatch.setenv("CODING_DATA_CACHE", str(tmp_path / "cache"))
    files = fsspec.filesystem("memory")
    for name, problems in (("mine", MINE), ("yours", YOURS)):
        write_problems(tmp_path / f"{name}.jsonl", problems)
        files.pipe(f"/bucket/{name}.jsonl", (tmp_path / f"{name}.jsonl").read_bytes())
    files.pipe("/bucket/mine.order", b"mine/5\nmine/2\n")
    files.pipe("/bucket/yours.order", b"yours/1\nyours/3\n")
    rates = "".join(f'{{"id": "{p.id}", "rate": 0.5}}\n' for p in [*MINE, *YOURS])
    files.pipe("/bucket/rates.jsonl", rates.encode())
    command = (
        "data rows mine=memory://bucket/mine.jsonl yours=memory://bucket/yours.jsonl "
        "--order memory://bucket/mine.order --order memory://bucket/yours.order "
        "--rates memory://bucket/rates.jsonl --max-rate 0.9 "
        f"--mixture mine=1,yours=1 --size 4 --out {tmp_path / 'out'}"
    )
    assert cli.main(command.split()) == 0
    assert "data.shuffle=false" in capsys.readouterr().out
    named = ids(tmp_path / "out" / "rl_train.parquet")
    assert named == ["mine/5", "yours/1", "mine/2", "yours/3"]
    assert cli.main([*command.split()[:-4], "--order", "memory://bucket/none", "--out", "x"]) == 2
    assert "memory://bucket/none" in capsys.readouterr().err


# ── the command ───────────────────────────────────────────────────────────────────────────────────


def test_the_command(tmp_path, capsys):
    write_problems(tmp_path / "p.jsonl", [*MINE, *MBPP])
    command = ["data", "rows", str(tmp_path / "p.jsonl"), "--out", str(tmp_path / "out")]
    assert (
        cli.main([*command, "--mixture", "mine=1,mbpp=1", "--size", "6", "--prompt", "bare"]) == 0
    )
    assert "rl_train.parquet: 6 rows" in capsys.readouterr().out
    rows = pq.read_table(tmp_path / "out" / "rl_train.parquet").to_pylist()
    assert "```" not in rows[0]["prompt"][0]["content"]


def test_rows_of_another_command_keep_their_problems(tmp_path):
    write_training_files([*MINE, *YOURS], tmp_path, Plan(use=Role.validation))
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    with pytest.raises(ConfigError, match=r"rl_validation\.parquet of another command"):
        write_training_files(MINE, tmp_path, Plan())
    assert before == {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    write_training_files(YOURS, tmp_path, Plan(use=Role.validation))
    assert [one.id for one in read_problems(tmp_path / "problems.jsonl")] == [p.id for p in YOURS]


@pytest.mark.parametrize("manifest", ["", "[]", "{}", '{"settings": 1, "counts": [3]}'])
def test_other_manifests_are_replaced(tmp_path, manifest):
    (tmp_path / "manifest.json").write_text(manifest)
    assert write_training_files(MINE, tmp_path, Plan()).rows == {"rl_train": 8}
    assert json.loads((tmp_path / "manifest.json").read_text())["counts"] == {"rl_train": 8}


def test_problems_that_no_program_could_solve_are_left_out_and_named(tmp_path, capsys):
    public = (Test(input=Stdin("1"), expected="1", public=True),)
    broken = [problem("mine/p", tests=public), problem("mine/f", comparison="fuzzy")]
    write_problems(tmp_path / "p.jsonl", [*MINE, *broken])
    command = ["data", "rows", str(tmp_path / "p.jsonl"), "--sft", "--out", str(tmp_path)]
    assert cli.main(command) == 0
    said = capsys.readouterr()
    assert "rl_train.parquet: 8 rows" in said.out and "sft_train.parquet: 8 rows" in said.out
    assert "left out: 1 (no hidden tests)\nleft out: 1 (unusable)" in said.out
    assert "mine/p: no hidden tests: only hidden" in said.err
    assert "mine/f: unusable: comparison='fuzzy': expected tokens" in said.err
    write_problems(tmp_path / "q.jsonl", broken)
    command[2] = str(tmp_path / "q.jsonl")
    assert cli.main(command) == 2
    said = capsys.readouterr().err
    assert "no problem is left to write: 1 × no hidden tests; 1 × unusable; the first: m" in said


@pytest.mark.parametrize(("more", "says"), CASES["wrong_usage"])
def test_wrong_usage(tmp_path, more, says, capsys):
    write_problems(tmp_path / "p.jsonl", MINE)
    assert cli.main(["data", "rows", str(tmp_path / "p.jsonl"), "--out", str(tmp_path), *more]) == 2
    assert says in capsys.readouterr().err


def test_test_only_sets_are_refused_by_name_and_written_for_evaluation(tmp_path, capsys):
    write_problems(tmp_path / "he.jsonl", [problem("humaneval/1", "test")])
    command = ["data", "rows", f"humaneval={tmp_path / 'he.jsonl'}", "--out", str(tmp_path / "out")]
    assert cli.main(command) == 2
    assert "test only" in capsys.readouterr().err
    assert cli.main([*command, "--as", "validation"]) == 0
    assert ids(tmp_path / "out" / "rl_validation.parquet") == ["humaneval/1"]


OUTCOMES = {
    "mine/0": [True, True, True, True],
    "mine/1": [True, True, False, None],
    "mine/2": [False, True, False, False],
    "mine/3": [False, False, False, False],
}


def rows_within(tmp_path, *options):
    write_problems(tmp_path / "p.jsonl", MINE)
    command = ["data", "rows", f"mine={tmp_path / 'p.jsonl'}", "--out", str(tmp_path / "out")]
    return cli.main([*command, "--json", *map(str, options)])


def test_rates_of_an_evaluation_choose_and_order_what_trains(tmp_path, capsys):
    evaluation, rates = write_evaluation(tmp_path / "eval", OUTCOMES), tmp_path / "rates.jsonl"
    assert cli.main(["data", "rates", str(evaluation), "--out", str(rates)]) == 0
    assert "4 problems, 3.75 samples each" in capsys.readouterr().out
    measured = [json.loads(line) for line in rates.read_text().splitlines()]
    assert [rate["id"] for rate in measured] == ["mine/0", "mine/1", "mine/2", "mine/3"]
    assert (measured[1]["passed"], measured[1]["judged"]) == (
        2,
        3,
    )  # what was ungradable is in no rate
    assert measured[3]["low"] == 0
    assert measured[3]["high"] == pytest.approx(0.4899, abs=1e-4)  # Wilson's for 0 of 4
    assert rows_within(tmp_path, "--rates", rates, "--min-rate", 0.1, "--max-rate", 0.9) == 0
    assert sorted(ids(tmp_path / "out/rl_train.parquet")) == ["mine/1", "mine/2"]
    left_out = json.loads(capsys.readouterr().out.splitlines()[-1])["left_out"]
    assert left_out == {"no measured rate": 4, "rate not within 0.1 to 0.9": 2}
    assert rows_within(tmp_path, "--order", rates) == 0
    assert ids(tmp_path / "out/rl_train.parquet") == ["mine/0", "mine/1", "mine/2", "mine/3"]


@pytest.mark.slow
def test_an_order_may_name_given_problems_that_do_not_train(tmp_path, capsys):
    write_problems(tmp_path / "p.jsonl", [*MINE, problem("mine/v", "validation")])
    rates, out = tmp_path / "rates.jsonl", tmp_path / "out"
    lines = [{"id": name, "rate": rate} for name, rate in (("v", 1), (1, 1), (5, 0.5), (2, 0.25))]
    rates.write_text("".join(f'{{"id": "mine/{r["id"]}", "rate": {r["rate"]}}}\n' for r in lines))
    command = ["data", "rows", f"mine={tmp_path / 'p.jsonl'}", "--out", str(out)]
    assert cli.main([*command, "--order", str(rates)]) == 0
    assert ids(out / "rl_train.parquet") == ["mine/1", "mine/5", "mine/2"]
    assert "--order: 1 entries ignored: given problems that do" in capsys.readouterr().out
    filtered = ["--rates", str(rates), "--max-rate", "0.9"]
    assert cli.main([*command, "--order", str(rates), *filtered, "--json"]) == 0
    assert ids(out / "rl_train.parquet") == ["mine/5", "mine/2"]
    assert json.loads(capsys.readouterr().out)["ignored"] == {"--rates": 1, "--order": 2}
    for lines, said in (("mine/v", "none of the 8 training problems"), ("mine/99", "'mine/99'")):
        (tmp_path / "order").write_text(lines)
        assert cli.main([*command, "--order", str(tmp_path / "order")]) == 2
        assert said in capsys.readouterr().err
    rates.write_text('{"id": "mine/v", "rate": 1}')
    assert cli.main([*command, "--rates", str(rates)]) == 2
    assert "rates only of problems that do not train, such as mine/v" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("lines", "options", "said"),
    [
        ('{"id": "mbpp/1", "rate": 0.5}', (), "another data set: it has mbpp/1"),
        ('{"id": "mine/1", "rate": 0.5}', ("--min-rate", 0.9), "no problem has a rate from 0.9"),
        ('{"id": "mine/1"}', (), "rates.jsonl:1: expected an object with id and rate"),
    ],
)
def test_rates_that_do_not_fit_are_refused(lines, options, said, tmp_path, capsys):
    (tmp_path / "rates.jsonl").write_text(lines)
    assert rows_within(tmp_path, "--rates", tmp_path / "rates.jsonl", *options) == 2
    assert said in capsys.readouterr().err


def test_rates_of_two_models_are_not_mixed(tmp_path, capsys):
    folders = [write_evaluation(tmp_path / m, OUTCOMES, model=m) for m in ("a", "b")]
    assert cli.main(["data", "rates", *map(str, folders), "--out", str(tmp_path / "r")]) != 0
    assert "evaluations of several models: a, b" in capsys.readouterr().err
