#!/usr/bin/env sh
# A small agent for the example: it reads the prompt, waits a second and adds a line to a file.
prompt=$(cat)
echo "prompt: $(printf '%s\n' "$prompt" | tail -n 1)"
sleep 1
echo "iteration $RLM_ITERATION, attempt $RLM_ATTEMPT" >> notes.txt
echo "notes.txt has $(wc -l < notes.txt) lines now."
