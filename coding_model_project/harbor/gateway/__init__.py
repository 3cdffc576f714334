"""An endpoint that records tokens: any agent trains the model that it talks to.

    requests   requests and replies in one form for all APIs, and what their readers share
    chat, responses, messages   the APIs: OpenAI's chat completions and Responses, Anthropic's Messages
    matching   which recorded reply a client sends back
    recorder   conversations as a tree of turns, and their training trajectories
    agent_session   one sample's agent: its limits, its replies, its shell
    session    an agent whose replies are a policy's; `harbor.evaluation` has one for served models
    app        the routes
    serving    uvicorn in the running event loop, on loopback or on a room's socket
    host       agents as processes of this machine
    agents     agents that work on a task: a command on the host or in the room, or a Python object

This package does not import verl: `verl_ext` implements `session.Policy` and `session.Codec`.
"""
