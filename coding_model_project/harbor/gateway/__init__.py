"""An endpoint that records tokens: any agent trains the model that it talks to.

    requests   requests and replies in one form for all APIs, and what their readers share
    chat, responses, messages   the APIs: OpenAI's chat completions and Responses, Anthropic's Messages
    recorder   conversations as a tree of turns, and their training trajectories
    session    one sample's agent: its limits, its replies, its shell; `harbor.evaluation` has a session
               with served models
    serving    the routes, and uvicorn in the running event loop, on loopback or on a room's socket
    gateway_agent   agents that work on a task: a command on the host or in the room

This package does not import verl: `verl_ext` implements `session.Policy` and `session.Codec`.
"""
