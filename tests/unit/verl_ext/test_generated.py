"""Token counts of a rollout server that is down."""

import socket

import pytest

from coding_model_project.errors import TrainingError
from coding_model_project.verl_ext.trainers.generated import generated_tokens


def test_a_server_that_does_not_answer_is_named_in_one_line():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
        with pytest.raises(TrainingError) as caught:
            generated_tokens([address])
    assert f"rollout server {address} does not answer" in str(caught.value)
    assert "\n" not in str(caught.value)
