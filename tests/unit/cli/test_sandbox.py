"""`sandbox`: check it, run one program in it, measure it."""

import io
import json
import os
import threading

import pytest

import coding_model_project.cli as cli
from coding_model_project.types import Execution, Status
from tests.tables import tables

CASES = tables("cli")


def test_run_prints_what_the_program_printed(tmp_path, sandbox, capsys):
    (tmp_path / "a.py").write_text("hello")
    command = ["sandbox", "run", str(tmp_path / "a.py"), "--stdin", ""]
    assert cli.main(command) == 0
    captured = capsys.readouterr()
    assert captured.out == "hello"
    assert "finished" in captured.err
    sandbox.answer = lambda *_: Execution(status=Status.raised, stderr_tail="oh", exit_code=1)
    assert cli.main(command) == 1


def piped(monkeypatch, content):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))


@pytest.mark.parametrize(("name", "options", "language"), CASES["extensions"])
def test_the_extension_chooses_the_language(tmp_path, sandbox, name, options, language):
    (tmp_path / name).write_text("hello")
    assert cli.main(["sandbox", "run", str(tmp_path / name), "--stdin", "", *options]) == 0
    assert sandbox.languages == [language]


def test_an_unknown_language_is_one_line_that_names_the_others(tmp_path, sandbox, capsys):
    (tmp_path / "a.cob").write_text("")
    command = ["sandbox", "run", str(tmp_path / "a.cob"), "--stdin", ""]
    assert cli.main(command) == 2
    (error,) = capsys.readouterr().err.splitlines()
    assert "'.cob'" in error and ".py, .c, .cpp" in error and "--language" in error
    assert cli.main([*command, "--language", "cobol"]) == 2
    assert "python, c, cpp, javascript, java, go, rust, bash" in capsys.readouterr().err


def test_standard_input_is_passed_on(tmp_path, sandbox, capsys, monkeypatch):
    (tmp_path / "a.py").write_text("hello")
    command = ["sandbox", "run", str(tmp_path / "a.py")]
    piped(monkeypatch, b"1 2\n\xff")
    assert cli.main(command) == 0
    piped(monkeypatch, b"3")
    assert cli.main([*command, "--stdin", "4"]) == 0
    monkeypatch.setattr("sys.stdin", None)  # closed
    assert cli.main(command) == 0
    given = [given.text for _, [given] in sandbox.calls]
    assert given == ["1 2\n\ufffd", "4", ""]


def test_who_waits_for_standard_input_says_so(tmp_path, sandbox, capsys, monkeypatch):
    (tmp_path / "a.py").write_text("hello")
    reader, writer = os.pipe()
    monkeypatch.setattr(cli.sandbox, "WAITS_S", 0.0)
    monkeypatch.setattr("sys.stdin", os.fdopen(reader))
    ends = threading.Timer(0.3, os.close, [writer])
    ends.start()
    assert cli.main(["sandbox", "run", str(tmp_path / "a.py")]) == 0
    assert "reading standard input" in capsys.readouterr().err


@pytest.mark.sandbox
@pytest.mark.soak  # the whole conformance suite, which other tests run, and a measurement
def test_check_and_bench_for_real(capsys):
    assert cli.main(["sandbox", "check"]) == 0
    assert "tier: " in capsys.readouterr().out
    assert cli.main(["sandbox", "bench", "--json", "--rounds", "1"]) == 0
    line = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert set(line) == {"tier", "embedded", "subprocess", "scaling"}
    assert line["embedded"]["tests_per_s"] > 0
