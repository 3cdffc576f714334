"""Who answers: the protocol (`generation`), vLLM in this process, a server of chat completions."""
