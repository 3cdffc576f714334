"""Ray clusters and the processes in them.

session.py       starts or joins Ray
nodes.py         the nodes of the Ray that this process is in
membership.py    checks of a run's nodes and of free resources, cleanup, lost nodes
worker_setup.py  what each worker does first: closed sockets, checkpoints that run no code
node_sandbox.py  the sandboxes of all nodes as one
forkserver.py    forks workers that have verl's slow imports; forkserver_client.py asks for one,
                 vllm_queue.py is one of these imports
"""
