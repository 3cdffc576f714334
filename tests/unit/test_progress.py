"""Progress lines if standard error is a log."""

from coding_model_project import progress


def test_a_log_gets_a_line_now_and_then_and_the_last_state(capsys, monkeypatch):
    monkeypatch.setattr(progress, "LINE_EVERY_S", 0)
    with progress.progress_bar("pre-training", total=1500, done=1200) as advance:
        advance()
        assert "pre-training: 1,201 of 1,500, about 0 min left\n" in capsys.readouterr().err
    assert "1201/1500" in capsys.readouterr().err


def test_a_log_is_not_filled_by_lines(capsys):
    with progress.progress_bar("judging", total=3) as advance:
        for _ in range(3):
            advance()
        assert capsys.readouterr().err == ""
