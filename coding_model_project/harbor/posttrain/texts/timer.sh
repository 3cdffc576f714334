#!/bin/bash
# Prints how much of the time is left. The clock started with the agent, not with the image.
started={{ timer }}/started_at
if ! [ -s "$started" ]; then
    echo "the clock has not started"
    exit 1
fi
left=$(($(cat "$started") + {{ seconds }} - $(date +%s)))
if [ "$left" -le 0 ]; then
    echo "0:00:00 left"
else
    printf '%d:%02d:%02d left\n' $((left / 3600)) $((left % 3600 / 60)) $((left % 60))
fi
