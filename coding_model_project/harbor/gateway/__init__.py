"""An OpenAI-compatible endpoint that records tokens: any agent trains the model that it talks to.

    requests   requests as clients send them: validated, compared, in the form of chat templates
    recorder   conversations as a tree of turns, and the trajectories to train on
    session    one sample's agent: its limits, its replies, its shell
    app        the routes: /v1/chat/completions, /v1/models, /v1/shell
    serving    uvicorn in the running event loop, on loopback or on a socket that a room listens on
    host       agents that run on this machine, as processes
    agents     agents on a task: a command on the host or in the room, or a Python object

Nothing here knows verl: `session.Policy` and `session.Codec` are implemented in `verl_ext`.
"""
