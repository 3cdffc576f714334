"""The judges of post-training tasks: what they find, what they cannot read, and that they fail closed."""

import bz2
import gzip
import io
import json
import lzma
import tarfile
import zipfile
from types import SimpleNamespace

import pytest

from coding_model_project.data.problems import problem_line
from coding_model_project.errors import ConfigError
from coding_model_project.harbor.posttrain import contamination, language_judge
from coding_model_project.harbor.posttrain.language_judge import MODEL, URL, Endpoint
from coding_model_project.harbor.posttrain.left_files import Left, left_files
from coding_model_project.harbor.posttrain.submission import (
    JudgeError,
    Unfit,
    Verdict,
    assemble,
    open_model,
)
from coding_model_project.types import Problem, Stdin, Test
from tests.answering import answering
from tests.tables import tables
from tests.unit.harbor.posttrain_models import write_model

LONG = (
    "A gardener walks along a row of flower pots that are numbered from one, and waters each pot whose "
    "number is a multiple of three; print how many litres of water she needs for {n} pots altogether"
)


def problem(number, statement, gold=()):
    tests = tuple(Test(Stdin(f"{number} {i}"), expected=str(number * i)) for i in range(6))
    return Problem(id=f"garden/{number}", split="test", statement=statement, tests=tests, gold=gold)


CITIES = "Read a list of city names and print the one that comes last in the order of a dictionary"
TESTS = (problem(1, LONG.format(n="twenty")), problem(2, CITIES))
ALLOWED = (problem(7, CITIES.replace("one that comes last", "first of them in small letters")),)


def judged(*texts, allowed=ALLOWED):
    left = [Left(path=f"/app/{n}", text=text) for n, text in enumerate(texts)]
    return contamination.judge(TESTS, allowed, left)


# ── contamination ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "text",
    [
        TESTS[0].statement,
        TESTS[0].statement.upper().replace(" ", "\n"),
        "x = [" + json.dumps(TESTS[0].statement) + "]",
        json.dumps({"prompt": "Solve: " + TESTS[0].statement, "completion": "42"}),
        problem_line(TESTS[0]).decode(),
        "\n".join(f"{n} {TESTS[0].statement}" for n in range(50)),  # copies are no boilerplate
        TESTS[0].statement.replace("gardener", "farmer").replace("litres", "buckets"),
    ],
)
def test_a_test_problem_is_found_in_whatever_form(text):
    found = judged("print('hello')\n" * 50, text)
    assert found.verdict is Verdict.rejected
    assert "garden/1" in found.reasons[0]
    assert "/app/1" in found.reasons[0]


def test_test_cases_alone_are_found_too():
    row = json.loads(problem_line(TESTS[1]))
    row |= {"id": "mine/3", "statement": "Do it."}
    found = judged(json.dumps(row))
    assert found.verdict is Verdict.rejected
    assert found.details["found"][0]["by"] == "cases"


def test_what_the_task_gave_is_no_evidence():
    assert judged(problem_line(ALLOWED[0]).decode()).verdict is Verdict.accepted
    assert judged(LONG.format(n="twenty"), allowed=TESTS).verdict is Verdict.accepted


def test_words_of_a_statement_spread_over_a_text_are_chance():
    words = TESTS[0].statement.split()
    spread = " ".join(
        " ".join(words[at : at + 8]) + " and so on with other words" * 60 for at in range(0, 24, 4)
    )
    assert judged(spread).verdict is Verdict.accepted


def test_a_file_that_cannot_be_read_is_no_clean_file():
    found = contamination.judge(TESTS, (), [Left(path="/app/x.7z", unread="no reader")])
    assert found.verdict is Verdict.rejected
    assert "/app/x.7z: no reader" in found.reasons[0]


# ── files ─────────────────────────────────────────────────────────────────────────────────────────


def packed(kind, content):
    buffer = io.BytesIO()
    if kind == "zip":
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("inner.txt", content)
    elif kind == "tar":
        with tarfile.open(fileobj=buffer, mode="w") as archive:
            entry = tarfile.TarInfo("inner.txt")
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    else:
        return {"gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress}[kind](content)
    return buffer.getvalue()


@pytest.mark.parametrize("kind", ["zip", "tar", "gz", "bz2", "xz"])
def test_text_is_read_from_archives_whatever_they_are_called(kind, tmp_path):
    (tmp_path / "weights.bin").write_bytes(packed(kind, TESTS[0].statement.encode()))
    (tmp_path / "twice.bin").write_bytes(packed("gz", packed(kind, b"the inner text")))
    texts = {left.path.split("!")[0].split("/")[-1]: left.text for left in left_files([tmp_path])}
    assert texts["weights.bin"] == TESTS[0].statement
    assert texts["twice.bin"] == "the inner text"


def test_text_is_read_from_parquet_and_binary_files(tmp_path):
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    pq.write_table(pa.table({"prompt": [TESTS[0].statement]}), tmp_path / "rows.parquet")
    (tmp_path / "code.pyc").write_bytes(b"\x00\x01\xff" * 9 + TESTS[0].statement.encode() + b"\0")
    assert all(TESTS[0].statement in left.text for left in left_files([tmp_path]))


def test_files_that_cannot_be_read_are_named(tmp_path):
    (tmp_path / "broken.gz").write_bytes(b"\x1f\x8b\x08broken")
    nested = b"text"
    for _ in range(5):
        nested = gzip.compress(nested)
    (tmp_path / "nested.gz").write_bytes(nested)
    found = {left.path: left.unread for left in left_files([tmp_path])}
    assert all(found.values())
    assert len(found) == 2


def test_weights_are_known_by_their_format_and_not_by_their_name(tmp_path):
    write_model(tmp_path / "model")
    (tmp_path / "data.safetensors").write_text(TESTS[0].statement)
    found = {left.path.split("/")[-1]: left for left in left_files([tmp_path])}
    assert found["model.safetensors"].weights
    assert found["data.safetensors"].text == TESTS[0].statement


def test_links_are_not_followed(tmp_path):
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "link").symlink_to("/etc/passwd")
    assert not list(left_files([tmp_path / "there"]))


# ── the submission ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [*tables("harbor")["submissions"], ("config.json", "[" * 100_000, "not JSON")],
)
def test_a_submission_is_data_only(name, content, said, tmp_path):
    folder = write_model(tmp_path / "final_model")
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text(content)
    with pytest.raises(Unfit, match=said):
        open_model(folder)


def test_a_link_is_no_weights_file(tmp_path):
    folder = write_model(tmp_path / "final_model")
    (folder / "more.safetensors").symlink_to(folder / "model.safetensors")
    with pytest.raises(Unfit, match="link"):
        open_model(folder)
    with pytest.raises(Unfit, match="no folder"):
        open_model(tmp_path / "nothing")


def test_all_but_the_weights_is_the_base_models(tmp_path):
    base = write_model(tmp_path / "base")
    folder = write_model(tmp_path / "final", config={"eos_token_id": 0, "mine": True})
    (folder / "chat_template.jinja").write_text("{{ 'the answer is 42' }}")
    made = assemble(open_model(folder), base, "{{ ours }}", "<|im_end|>", tmp_path / "made")
    assert "mine" not in json.loads((made / "config.json").read_text())
    assert (made / "chat_template.jinja").read_text() == "{{ ours }}"
    assert json.loads((made / "generation_config.json").read_text()) == {"eos_token_id": [1]}
    assert (made / "model.safetensors").resolve() == (folder / "model.safetensors").resolve()


# ── a language model as judge ─────────────────────────────────────────────────────────────────────


@pytest.fixture
def endpoint():
    """A server that answers with `answers`, and keeps what it was asked."""

    def answer(_, __, body):
        server.asked.append(body)
        return server.answers.pop(0)

    with answering(answer) as url:
        server = SimpleNamespace(url=url, answers=[], asked=[])
        yield server


def completion(text):
    return 200, {}, json.dumps({"choices": [{"message": {"content": text}}]}).encode()


def ask(server):
    left = [Left(path="/app/train.py", text="print('train')"), Left(path="/app/x", unread="broken")]
    judge = Endpoint(url=f"{server.url}/v1", model="judge")
    return language_judge.judge(judge, left, model="the tiny model", benchmark="tinycode")


def test_a_language_model_is_shown_the_files_and_its_verdict_counts(endpoint):
    clean = '{"contamination": false, "disallowed_model": false, "reason": "copied"}'
    bad = f"I see.\n{clean.replace('false', 'true', 1)}"
    endpoint.answers = [completion(clean), completion(bad)]
    assert ask(endpoint).verdict is Verdict.accepted
    assert b"print('train')" in endpoint.asked[0]
    assert b"not read: broken" in endpoint.asked[0]
    found = ask(endpoint)
    assert found.verdict is Verdict.rejected
    assert found.reasons == ("contamination: copied",)


@pytest.mark.parametrize(
    "answer",
    [
        (500, {}, b"no"),
        (200, {}, b"<html>nonsense</html>"),
        (200, {}, b"[]"),
        (200, {}, b'{"choices": [{"message": {"content": null}}]}'),
        completion("I cannot say."),
        completion('{"contamination": "no", "disallowed_model": "no"}'),
        completion('{"contamination": false}'),
        completion("{" * 5_000),
    ],
)
def test_nonsense_is_no_verdict(endpoint, answer):
    endpoint.answers = [answer]
    with pytest.raises(JudgeError) as raised:
        ask(endpoint)
    assert "\n" not in str(raised.value)


def test_a_judge_that_is_not_there_gives_no_verdict():
    nobody = Endpoint(url="http://127.0.0.1:9/v1", model="judge")
    with pytest.raises(JudgeError, match="does not answer"):
        language_judge.judge(nobody, [], model="m", benchmark="b")


def test_a_judge_is_configured_by_its_variables():
    assert Endpoint.of({}) is None
    assert Endpoint.of({URL: ""}) is None
    found = Endpoint.of({URL: "http://x/v1/", MODEL: "judge"})
    assert found == Endpoint(url="http://x/v1", model="judge")
    with pytest.raises(ConfigError, match=MODEL):
        Endpoint.of({URL: "http://x/v1"})
