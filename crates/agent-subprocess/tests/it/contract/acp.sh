id() { printf '%s' "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p'; }
ok() { say '{"jsonrpc":"2.0","id":'"$(id)"',"result":'"$1"'}'; }
update() { say '{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"'"$session"'","update":{"sessionUpdate":"'"$1"'",'"$2"'}}}'; }
answer() { say '{"jsonrpc":"2.0","id":'"$prompt"','"$1"'}'; }

talk() { update agent_message_chunk '"content":{"type":"text","text":"'"$1"'"}'; }
speak() { talk "$1"; }
tool_begins() { update tool_call '"toolCallId":"t'"$prompt"'","title":"make","kind":"execute","status":"in_progress"'; }
tool_ends() { update tool_call_update '"toolCallId":"t'"$prompt"'","status":"completed"'; }
finish() { answer '"result":{"stopReason":"end_turn"}'; }
retries() { :; }
limited() { answer '"error":{"code":429,"message":"rate limit exceeded"}'; }
half() { printf '{"jsonrpc":"2.0","id":%s,"result":{"stopRea' "$prompt"; }

while IFS= read -r line; do case $line in
  *'"method":"initialize"'*) ok '{"protocolVersion":1,"agentCapabilities":{"loadSession":true},"agentInfo":{"name":"stand-in","version":"1"}}' ;;
  *'"method":"session/new"'*) session=s$$; ok '{"sessionId":"'"$session"'"}' ;;
  *'"method":"session/load"'*) session=$(field sessionId); talk old; ok null ;;
  *'"method":"session/prompt"'*) prompt=$(id); perform ;;
  *'"method":"session/cancel"'*) cut_short; answer '"result":{"stopReason":"cancelled"}' ;;
esac; done
