#!/bin/bash
{% for option in sbatch %}
#SBATCH {{ option }}
{% endfor %}
cd {{ cwd }} || exit 3
rm -f {{ exit_file }}
export PYTHONPATH={{ source }}${PYTHONPATH:+:$PYTHONPATH} PYTHONSAFEPATH=1  # the code as it was submitted
{% if gpus is not none %}
export CUDA_VISIBLE_DEVICES={{ gpus }}
{% endif %}
# On TERM the run saves a checkpoint and ends with 130. `jobs stop` sends USR1 for the same.
ask() {
    [ -z "$asked" ] || return
    asked=1
{% if recipe != "baseline" %}
    # Not by TERM: Slurm signals the run too, and a second TERM ends it without a checkpoint. While it
    # starts there is nothing to save, and TERM it is.
    {{ python }} -m coding_model_project runs stop {{ run_dir }} && return
{% endif %}
    [ -z "$run" ] || kill -TERM $run
}
trap ask TERM
trap 'stopped=1; ask' USR1
{% if sbatch %}
saved() { ls {{ run_dir }}/checkpoints 2>/dev/null; }
before=$(saved)
{% endif %}
{% if several %}
# Ray's head is on this node, the first one. The other nodes cannot reach its loopback address, to which
# its name may resolve here. The port is between those of Ray's workers and of outgoing connections.
ip=$({ getent ahostsv4 "$(hostname)"; hostname -I | tr ' ' '\n'; } | awk '/^[0-9.]+/ && !/^127\./ { print $1; exit }')
export PATH={{ bin }}:$PATH RAY_ADDRESS=$ip:$((20000 + SLURM_JOB_ID % 10000))
export RAY_SYMMETRIC_RUN_CLUSTER_WAIT_TIMEOUT=${RAY_SYMMETRIC_RUN_CLUSTER_WAIT_TIMEOUT:-300}
# Without it, Ray's wait for a slow head ends with an error after 40 s.
export RAY_py_gcs_connect_timeout_s=$RAY_SYMMETRIC_RUN_CLUSTER_WAIT_TIMEOUT
srun --ntasks=$SLURM_JOB_NUM_NODES --ntasks-per-node=1 --cpu-bind=none --kill-on-bad-exit=1 --wait=10 \
    ray symmetric-run --address $RAY_ADDRESS --min-nodes $SLURM_JOB_NUM_NODES --num-cpus=$SLURM_CPUS_ON_NODE -- \
    bash -c '"$@"; echo $? > "$0"' {{ exit_file }} {{ command }}{% if not nnodes and recipe != "baseline" %} trainer.nnodes=$SLURM_JOB_NUM_NODES{% endif %} &
{% else %}
{{ command }} &
{% endif %}
run=$!
[ -z "$asked" ] || kill -TERM $run  # the signal came before the run started
while kill -0 $run 2>/dev/null; do wait $run; done
wait $run; code=$?
{% if several %}
# Ray's command ends with 0 if it could not start Ray.
[ -e {{ exit_file }} ] && code=$(cat {{ exit_file }}) || code=${asked:+130}
code=${code:-1}
{% endif %}
{% if sbatch %}
# At the time limit, requeue the job: the same command resumes the run. Do not requeue after `jobs stop`
# or scancel, whose SIGTERM reaches the run too; nor a training without a new checkpoint, which would
# gain as little again.
again=
[ $code != 130 ] || [ -n "$stopped" ] || again="raise --time, or lower --signal-s"
{% if several %}
# Ray notices a dead node before Slurm does (SlurmdTimeout), which then would requeue the job.
[ $code != 3 ] || [ -n "$asked" ] || again="see the error above"
{% endif %}
if [ -n "$again" ] && scontrol show job $SLURM_JOB_ID | grep -q JobState=RUNNING; then
    if [ {{ recipe }} != baseline ] && [ "$(saved)" = "$before" ]; then
        echo "not requeued: no step since the last checkpoint; $again" >&2
    elif scontrol requeue $SLURM_JOB_ID; then
        exit 0
    fi
fi
{% endif %}
echo $code > {{ exit_file }}
exit $code
