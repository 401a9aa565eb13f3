#!/bin/bash
# TaskProlog: tells at the start of a job that its GPUs are held, and where the recorder finds its settings. What it prints
# as "export NAME=VALUE" Slurm puts into the task's environment.
# In slurm.conf: TaskProlog=/etc/slurm/goodput-prolog.sh
# It must never keep a job from starting: whatever fails is passed over, and sacct tells it later (epilog.sh, or the timer).
set -u
echo "export GOODPUT_SPOOL=${GOODPUT_SPOOL:-/var/tmp/goodput-${SLURM_JOB_USER:-$(id -un)}}"
if [ "${SLURM_PROCID:-0}" = 0 ] && [ -n "${SLURM_JOB_START_TIME:-}" ]; then
    timeout 10 goodput allocation slurm --environment \
        --to "${GOODPUT_COLLECTOR:-http://collector.example.com:9470}" \
        --token-file "${GOODPUT_TOKEN_FILE:-/etc/goodput/token}" >/dev/null 2>&1 </dev/null &
fi
exit 0
