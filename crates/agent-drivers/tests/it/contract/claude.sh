for word; do case $word in
  --resume=*) from=${word#*=}; session=$from ;;
  --session-id=*) session=${word#*=} ;;
esac; done
if [ "$from" ] && [ ! -e "memory.$from" ]; then
  say '{"type":"result","subtype":"error_during_execution","is_error":true,"errors":["No conversation found with session ID: '"$from"'"]}'
  exit 1
fi
[ "$from" = "$session" ] || [ -z "$from" ] || copy "$from"

lifecycle() { say '{"type":"command_lifecycle","command_uuid":"'"$(field uuid)"'","state":"'"$1"'"}'; }
ok() { say '{"type":"control_response","response":{"subtype":"success","request_id":"'"$(field request_id)"'","response":{'"$1"'}}}'; }
content() { say '{"type":"'"$1"'","message":{"content":['"$2"']}}'; }
result() { say '{"type":"result","subtype":"success","terminal_reason":"'"$1"'","result":"",'"$2"'}'; }

talk() { say '{"type":"stream_event","event":{"type":"content_block_delta","delta":{"type":"text_delta","text":"'"$1"'"}}}'; }
speak() { talk "$1"; content assistant '{"type":"text","text":"'"$1"'"}'; }
tool_begins() { content assistant '{"type":"tool_use","id":"tool","name":"Bash","input":{"command":"make"}}'; }
tool_ends() { content user '{"type":"tool_result","tool_use_id":"tool","is_error":false,"content":"made"}'; }
tool_denied() { content user '{"type":"tool_result","tool_use_id":"tool","is_error":true,"content":"no"}'; }
ask() { say '{"type":"control_request","request_id":"a'$asks'","request":{"subtype":"can_use_tool","tool_name":"Bash","tool_use_id":"tool","input":{"command":"make"}}}'; }
use() { :; }
finish() { result completed '"is_error":false,"total_cost_usd":0.5'; }
retries() { say '{"type":"system","subtype":"api_retry","attempt":1,"max_retries":10,"retry_delay_ms":500,"error_status":429,"error":"rate_limit"}'; }
limited() { result completed '"is_error":true,"api_error_status":429'; }
half() { printf '{"type":"result","subtype":"succ'; }

user() {
  if [ -e busy ]; then
    deed >heard
    lifecycle queued
    lifecycle started
    return
  fi
  lifecycle started
  say '{"type":"system","subtype":"init","claude_code_version":"0","model":"m"}'
  perform
}

while IFS= read -r line; do case $line in
  *'"subtype":"initialize"'*) ok ;;
  *'"subtype":"interrupt"'*) cut_short; ok '"still_queued":[]'; result aborted_streaming '"is_error":true' ;;
  *'"subtype":"end_session"'*) ok; exit 0 ;;
  *'"behavior":"allow"'*) allowed ;;
  *'"behavior":"deny"'*) denied ;;
  *'"type":"user"'*) user ;;
esac; done
