#!/bin/bash
# A small loop runner for real agents. It keeps the promises of the lab, and breaks one of them if FAULT names its score.
#
#   real_loop.sh start AGENT PROMPT CHECK ITERATIONS
#   real_loop.sh message TEXT
mkdir -p .loop
if [ "$1" = message ]; then
    echo "$2" >>.loop/messages
    exit 0
fi
agent=$2 prompt=$3 check=$4 iterations=$5

# All processes of the loop have this variable, also those that left its session.
export LOOP_OF_CONTROLS=$PWD
end_processes() {
    local round process
    for round in 1 2 3; do
        for process in /proc/[0-9]*; do
            [ "${process#/proc/}" != "$$" ] || continue
            if grep -qzxF "LOOP_OF_CONTROLS=$PWD" "$process"/environ 2>/dev/null; then kill -KILL "${process#/proc/}" 2>/dev/null; fi
        done
    done
}
[ "$FAULT" = stop ] || trap 'end_processes; exit 143' TERM
end_processes

[ "$FAULT" != resume ] || [ ! -e .loop/journal ] || iterations=$((iterations + 3))
: >>.loop/journal
failures=0
while [ "$(wc -l <.loop/journal)" -lt "$iterations" ]; do
    cat "$prompt" >.loop/input
    [ "$FAULT" = control ] || cat .loop/messages >>.loop/input 2>/dev/null
    "$agent" <.loop/input >.loop/output 2>&1 &
    wait $!
    code=$?
    ! "$check" || exit 0
    [ "$FAULT" != done ] || ! grep -q '<promise>COMPLETE</promise>' .loop/output || exit 0
    [ "$FAULT" != night ] || ! grep -qi 'reconnecting\|disconnected\|retry' .loop/output || exit 1
    if [ "$code" = 0 ]; then
        echo complete >>.loop/journal
        continue
    fi
    failures=$((failures + 1))
    [ "$failures" -lt 8 ] || exit 6
    sleep 1
done
exit 3
