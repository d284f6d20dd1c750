#!/usr/bin/env sh
# Runs a whole loop in a temporary git repository, with a shell script as the agent: no account, no network.
# Press Ctrl-C while it runs; rlm then prints the command that continues the run.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
(cd "$here/.." && cargo build --release --quiet)
rlm="$here/../target/release/rlm"

place=$(mktemp -d)
cd "$place"
git init --quiet
git -c user.name=example -c user.email=example@localhost commit --quiet --allow-empty -m "an empty project"
echo "Add one line to notes.txt. Done when it has three." > PROMPT.md

"$rlm" run --sleep 2 --until 'test "$(wc -l < notes.txt)" -ge 3' -- sh "$here/agent.sh"

echo
echo "project:   $place"
echo "see more:  cd $place && $rlm status && $rlm logs"
