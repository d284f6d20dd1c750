#!/bin/bash
# A small loop runner that keeps the promises of the lab, and breaks one of them if FAULT names it.
#
#   loop.sh start AGENT PROMPT CHECK ITERATIONS
#   loop.sh message TEXT
#
# Its state: one line for each complete iteration in .loop/journal, and one file for each message in .loop/messages.
mkdir -p .loop/messages
if [ "$1" = message ]; then
    echo "$2" >.loop/messages/"$$"
    exit 0
fi
agent=$2 prompt=$3 check=$4 iterations=$5

known=$(ls .loop/journal 2>/dev/null)
: >>.loop/journal
finished() { grep -c "complete$" .loop/journal || true; }
count() { echo 'an iteration is complete' >>.loop/journal; }

# The agent inherits this lock, so the next loop also waits for an agent that outlived its loop.
exec 9>.loop/lock
if [ "$FAULT" != race ] || [ "$iterations" -gt 1 ]; then flock -w 30 9 || exit 75; fi

case $FAULT in
twice) [ "$(finished)" -lt 5 ] || sed -i '1,4d' .loop/journal ;;
tool-crash) [ ! -e "$XDG_RUNTIME_DIR"/loop.pid ] || exit 1 ;;
reboot) [ ! -e .loop/session ] || [ -e "$TMPDIR"/session ] || exit 1 ;;
full-disk) [ -z "$known" ] || [ -e .loop/session ] || exit 1 ;;
torn) [ -z "$(tail -c 1 .loop/journal 2>/dev/null)" ] || : >.loop/journal ;;
tool-restart) rm -f .loop/messages/* ;;
esac

: >"$XDG_RUNTIME_DIR"/loop.pid
: >"$TMPDIR"/session
: >.loop/session

# An agent without an end has four seconds, and ends with its loop.
limit="setpriv --pdeathsig KILL timeout --foreground -s KILL 4"
[ "$FAULT" != hang ] || limit=

failures=0 restarted=1
while [ "$(finished)" -lt "$iterations" ]; do
    early=
    if [ "$FAULT" = lost ] && [ "$iterations" -gt 7 ]; then early=1; count; fi
    cat "$prompt" >.loop/input
    sent=$(ls .loop/messages)
    if [ "$FAULT" != message ] || [ "$restarted" = 1 ]; then
        for message in $sent; do cat .loop/messages/"$message" >>.loop/input; done
    fi
    if [ "$FAULT" = orphan ]; then
        setsid "$agent" <.loop/input >.loop/output 2>&1 9>&-
    else
        $limit setpriv --pdeathsig KILL "$agent" <.loop/input >.loop/output 2>&1
    fi
    code=$? restarted=0
    if [ "$code" != 0 ]; then
        case $FAULT in
        failed-agent) exit 0 ;;
        rate-limit) ! grep -q 'usage limit' .loop/output || exit 1 ;;
        overload) ! grep -q 'Error: 529' .loop/output || exit 1 ;;
        dropped) [ -z "$(tail -c 1 .loop/output)" ] || exit 1 ;;
        agent-crash) [ "$code" != 139 ] || exit 1 ;;
        full-disk) [ "$code" != 99 ] || { rm -f .loop/session; exit 1; } ;;
        esac
        [ "$FAULT" != agent-restart ] || rm -f .loop/messages/*
        # The check decides, also after an agent that failed.
        [ "$FAULT" = exit-one ] || ! "$check" || exit 0
        failures=$((failures + 1)) restarted=1
        [ "$failures" -lt 8 ] || exit 6
        sleep 1
        continue
    fi
    for message in $sent; do rm -f .loop/messages/"$message"; done
    failures=0
    [ -n "$early" ] || count
    size=$(stat -c %s .loop/output)
    case $FAULT in
    long-line) [ "$size" -lt 1000000 ] || [ "$size" -gt 9000000 ] || exit 1 ;;
    flood) [ "$size" -lt 9000000 ] || exit 1 ;;
    tool-output) ! grep -A 1 '^output:' .loop/output | grep -q COMPLETE || exit 0 ;;
    prompt) ! grep -q COMPLETE "$prompt" || exit 0 ;;
    exit-zero) ! grep -q "^error: I can't" .loop/output || exit 0 ;;
    whole-night) [ "$(finished)" -lt 9 ] || exit 0 ;;
    lying-agent) [ "$(tail -n 1 .loop/output)" != '<promise>COMPLETE</promise>' ] || exit 0 ;;
    zero-work) [ -s .loop/output ] || exit 0 ;;
    esac
    if "$check"; then
        [ "$FAULT" != honest-agent ] || exit 5
        exit 0
    fi
done
[ "$FAULT" != failed-check ] || ! [ -e work.txt ] || grep -q '^error' .loop/output || exit 0
exit 3
