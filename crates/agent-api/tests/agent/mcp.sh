#!/usr/bin/env bash
# An MCP server of the tests. It writes its messages as plain lines, so that it can break the protocol. The first argument is its behaviour; it logs each
# line that it reads to the file of the second argument.
mode=$1
log=$2

result() { printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$1"; }
text() { result "{\"content\":[{\"type\":\"text\",\"text\":\"$1\"}]}"; }
description='A tool.'
tool() { printf '{"name":"%s","description":"'"$description"'","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}}' "$1"; }

ping='{"jsonrpc":"2.0","id":"p","method":"ping"}'
note='{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"x"}}'

env > "$log.env"
case $mode in
    dies) echo 'reading its settings' >&2; echo 'no such database' >&2; exit 3 ;;
    pings) exec yes "$ping" ;;
    notes) exec yes "$note" ;;
    silent) exec sleep 600 ;;
    garbage) while echo 'this is no message'; do :; done ;;
    huge) head -c 20000000 /dev/zero | tr '\0' x; exec sleep 600 ;;
    strangers) exec yes '{"jsonrpc":"2.0","id":99,"result":{}}' ;;
    wide) description=$(printf 'x%.0s' {1..1000}) ;;
    family) setsid sleep 600 & trap '' TERM ;;
esac
while IFS= read -r line; do
    printf '%s\n' "$line" >> "$log"
    [[ $line =~ \"id\":([0-9]+) ]] && id=${BASH_REMATCH[1]}
    case $line in
        *'"method":"initialize"'*)
            [ "$mode" = chatty ] && echo 'a line that is no message'
            case $mode in
                refuses) printf '{"jsonrpc":"2.0","id":%s,"error":{"code":-32000,"message":"no licence"}}\n' "$id" ;;
                wrong) result '{"answer":42}' ;;
                *) result '{"protocolVersion":"2025-06-18","capabilities":{"tools":{"listChanged":true}},"serverInfo":{"name":"fake","version":"1"}}' ;;
            esac ;;
        *'"method":"tools/list"'*'"cursor":"next"'*) result "{\"tools\":[$(tool die),$(tool ask.human),$(tool ask.human)]}" ;;
        *'"method":"tools/list"'*)
            case $mode in
                no-list) ;;
                many* | wide)
                    tools=$(tool t199)
                    for n in {198..100}; do tools+=,$(tool "t$n"); done
                    result "{\"tools\":[$tools]}" ;;
                *) result "{\"tools\":[$(tool greet),$(tool hang),$(tool flood)],\"nextCursor\":\"next\"}" ;;
            esac ;;
        *'"method":"tools/call"'*'"name":"greet"'*)
            printf '{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}\n'
            printf '%s\n{"jsonrpc":"2.0","id":"q","method":"roots/list"}\n' "$ping"
            text "hello from $mode" ;;
        *'"method":"tools/call"'*'"name":"die"'*) echo 'out of memory' >&2; exit 4 ;;
        *'"method":"tools/call"'*'"name":"flood"'*) exec yes "$ping" ;;
        *'"method":"tools/call"'*'"name":"hang"'*) touch "$log.hangs" ;;
        *'"method":"tools/call"'*) text 'a human answers' ;;
    esac
done
case $mode in family) while :; do sleep 1; done ;; esac
