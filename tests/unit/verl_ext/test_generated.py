"""Token counts of rollout servers that fail or are down."""

import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

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


@pytest.fixture
def server():
    """A server whose next answers are given statuses; then it has counted 5 tokens."""
    statuses = []

    class Metrics(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(statuses.pop(0) if statuses else 200)
            self.end_headers()
            self.wfile.write(b'vllm:generation_tokens_total{engine="0"} 5.0\n')

        def log_message(self, *_): ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Metrics) as serving:
        threading.Thread(target=serving.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{serving.server_port}", statuses
        serving.shutdown()


def test_a_server_that_fails_once_is_asked_again(server):
    address, statuses = server
    assert generated_tokens([address, address]) == 10
    statuses[:] = [503]
    assert generated_tokens([address, address]) == 10
    statuses[:] = [503] * 20
    with pytest.raises(TrainingError, match=r"does not answer \(.*503"):
        generated_tokens([address])
