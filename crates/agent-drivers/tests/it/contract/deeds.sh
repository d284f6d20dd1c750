# The actions of a stand-in for an agent. Each protocol defines the functions: say, speak, talk, tool_begins, tool_ends, finish, retries, limited,
# half, ask, tool_denied, use. A message has the action in angle brackets. `line` is the message, `session` the name of the conversation.

say() { printf '%s\n' "$1"; }
field() { printf '%s' "$line" | sed -n 's/.*"'"$1"'":"\([^"]*\)".*/\1/p'; }
deed() { printf '%s' "$line" | sed -n 's/.*<\([^>]*\)>.*/\1/p'; }

# The previous process may have died in the middle.
rm -f busy heard
asks=0

# Stores the first message of the session, across processes.
remember() { [ -e "memory.$session" ] || deed >"memory.$session"; }

# Long actions run in the background, so that the agent can still read its input.
perform() {
  remember
  : >busy
  set -- $(deed)
  case $1 in
    say) speak "$2"; done_with_it ;;
    recall) speak "at first: $(cat "memory.$session")"; done_with_it ;;
    tool) tool_begins; tool_ends; done_with_it ;;
    ask) tool_begins; asks=$((asks + 1)); ask ;;
    hold) hold "$2" "$3" & worker=$! ;;
    talk) talk_on "$2" & worker=$! ;;
    limit-once) retries; speak "$2"; done_with_it ;;
    limit) rm busy; limited ;;
    cut) talk half; half; exit 0 ;;
    flood) flood "$2"; done_with_it ;;
  esac
}

done_with_it() { rm -f busy; use; finish; }
allowed() { tool_ends; done_with_it; }
denied() { tool_denied; done_with_it; }

# Makes a session that begins as a copy.
copy() { cp "memory.$1" "memory.$session"; }

tool() { sh -c 'echo $$ >"$1.new"; mv "$1.new" "$1.pid"; exec sleep "$2"' tool "$1" "$2" </dev/null >/dev/null 2>&1; }

hold() {
  tool_begins
  tool "$1" "$2"
  tool_ends
  [ ! -e heard ] || speak "meanwhile: $(cat heard)"
  done_with_it
}

talk_on() {
  end=$(($(date +%s) + $1))
  while [ "$(date +%s)" -lt "$end" ]; do talk 'la '; sleep 0.05; done
  done_with_it
}

flood() {
  piece=$(head -c 16384 /dev/zero | tr '\0' x)
  sent=0
  while [ "$sent" -lt "$1" ]; do speak "$piece"; sent=$((sent + 16384)); done
}

# Ends the background action and its tool.
cut_short() {
  rm -f busy
  kill "$worker" 2>/dev/null
  wait "$worker" 2>/dev/null
  for pid in *.pid; do [ ! -e "$pid" ] || kill "$(cat "$pid")" 2>/dev/null; done
}
