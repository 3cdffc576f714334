"""The tiny starting model is made once."""

from coding_model_project.synthetic import tiny_model


def test_a_model_that_is_there_is_not_made_again(tmp_path, monkeypatch):
    made, said = [], []
    monkeypatch.setattr(
        tiny_model, "pretrain", lambda out, corpus, *_, **__: made.append((out, corpus))
    )

    def once() -> None:
        config = tiny_model.TinyModelConfig(steps=1)
        tiny_model.pretrain_once(
            tmp_path, lambda: "corpus", config, seed=0, takes="a minute", say=said.append
        )

    once()
    assert made == [(tmp_path / "base", "corpus")]
    assert str(tmp_path / "base") in said[0] and "a minute" in said[0]
    (tmp_path / "base").mkdir()
    (tmp_path / "base" / "config.json").touch()
    once()
    assert len(made) == len(said) == 1
