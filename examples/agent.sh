#!/usr/bin/env sh
# An agent that takes its time and does a little: it reads the prompt and adds a line.
prompt=$(cat)
echo "I was asked: $(printf '%s\n' "$prompt" | tail -n 1)"
sleep 1
echo "iteration $RLM_ITERATION, attempt $RLM_ATTEMPT" >> notes.txt
echo "notes.txt has $(wc -l < notes.txt) lines now."
