"""Generation back ends: the protocol (`generation`), vLLM in this process, chat completion servers."""
