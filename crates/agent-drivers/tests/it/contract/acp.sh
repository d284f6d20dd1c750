id() { printf '%s' "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p'; }
ok() { say '{"jsonrpc":"2.0","id":'"$(id)"',"result":'"$1"'}'; }
update() { say '{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"'"$session"'","update":{"sessionUpdate":"'"$1"'",'"$2"'}}}'; }
answer() { say '{"jsonrpc":"2.0","id":'"$prompt"','"$1"'}'; }

talk() { update agent_message_chunk '"content":{"type":"text","text":"'"$1"'"}'; }
speak() { talk "$1"; }
tool_begins() { update tool_call '"toolCallId":"t'"$prompt"'","title":"make","kind":"execute","status":"in_progress"'; }
tool_ends() { update tool_call_update '"toolCallId":"t'"$prompt"'","status":"completed"'; }
tool_denied() { update tool_call_update '"toolCallId":"t'"$prompt"'","status":"failed"'; }
ask() { say '{"jsonrpc":"2.0","id":"a'$asks'","method":"session/request_permission","params":{"sessionId":"'"$session"'","toolCall":{"toolCallId":"t'"$prompt"'","title":"make","kind":"execute"},"options":[{"optionId":"yes","kind":"allow_once"},{"optionId":"no","kind":"reject_once"}]}}'; }
use() { :; }
finish() { answer '"result":{"stopReason":"end_turn","usage":{"inputTokens":1,"outputTokens":1}}'; }
retries() { :; }
limited() { answer '"error":{"code":429,"message":"rate limit exceeded"}'; }
half() { printf '{"jsonrpc":"2.0","id":%s,"result":{"stopRea' "$prompt"; }

load() {
  session=$(field sessionId)
  if [ ! -e "memory.$session" ]; then
    say '{"jsonrpc":"2.0","id":'"$(id)"',"error":{"code":-32602,"message":"session not found"}}'
    return
  fi
  talk old
  ok null
}
fork() {
  from=$(field sessionId)
  session=s$$
  copy "$from"
  ok '{"sessionId":"'"$session"'"}'
}

while IFS= read -r line; do case $line in
  *'"method":"initialize"'*) ok '{"protocolVersion":1,"agentCapabilities":{"loadSession":true,"sessionCapabilities":{"fork":{}}},"agentInfo":{"name":"stand-in","version":"1"}}' ;;
  *'"method":"session/new"'*) session=s$$; ok '{"sessionId":"'"$session"'"}' ;;
  *'"method":"session/load"'*) load ;;
  *'"method":"session/fork"'*) fork ;;
  *'"optionId":"yes"'*) allowed ;;
  *'"optionId":"no"'*) denied ;;
  *'"method":"session/prompt"'*) prompt=$(id); perform ;;
  *'"method":"session/cancel"'*) cut_short; answer '"result":{"stopReason":"cancelled"}' ;;
esac; done
