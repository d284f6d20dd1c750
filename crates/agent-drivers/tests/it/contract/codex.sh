n=0
id() { printf '%s' "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p'; }
ok() { say '{"id":'"$(id)"',"result":{'"$1"'}}'; }
tell() { say '{"method":"'"$1"'","params":{"threadId":"'"$session"'","turnId":"'"$n"'",'"$2"'}}'; }
item() { tell "item/$1" '"item":{'"$2"'}'; }
turn() { tell "turn/$1" '"turn":{"id":"'"$n"'",'"$2"'}'; }
taken() { item started '"type":"userMessage","id":"u","clientId":"'"$(field clientUserMessageId)"'"'; }

talk() { tell item/agentMessage/delta '"itemId":"m","delta":"'"$1"'"'; }
speak() { talk "$1"; item completed '"type":"agentMessage","id":"m","text":"'"$1"'"'; }
tool_begins() { item started '"type":"commandExecution","id":"c'"$n"'","command":"make","status":"inProgress"'; }
tool_ends() { item completed '"type":"commandExecution","id":"c'"$n"'","command":"make","status":"completed","exitCode":0,"aggregatedOutput":"made"'; }
tool_denied() { item completed '"type":"commandExecution","id":"c'"$n"'","command":"make","status":"declined"'; }
ask() { say '{"id":'$asks',"method":"item/commandExecution/requestApproval","params":{"threadId":"'"$session"'","turnId":"'"$n"'","itemId":"c'"$n"'","command":"make"}}'; }
use() { tell thread/tokenUsage/updated '"tokenUsage":{"total":{"inputTokens":'"$n"',"outputTokens":1},"last":{"inputTokens":1,"outputTokens":1}}'; }
finish() { turn completed '"status":"completed"'; }
retries() { tell error '"willRetry":true,"error":{"message":"Reconnecting... 1/5","codexErrorInfo":{"responseStreamDisconnected":{"httpStatusCode":429}}}'; }
limited() { turn completed '"status":"failed","error":{"message":"too many requests","codexErrorInfo":{"responseTooManyFailedAttempts":{"httpStatusCode":429}}}'; }
half() { printf '{"method":"turn/compl'; }

open() {
  from=$(field threadId)
  session=${from:-t$$}
  if [ "$from" ] && [ ! -e "memory.$from" ]; then
    say '{"id":'"$(id)"',"error":{"code":-32600,"message":"no rollout found for thread id '"$from"'"}}'
    return
  fi
  case $line in *'"method":"thread/fork"'*) session=t$$; copy "$from" ;; esac
  ok '"thread":{"id":"'"$session"'"},"model":"m"'
}
start() {
  n=$((n + 1))
  ok '"turn":{"id":"'"$n"'"}'
  turn started '"status":"inProgress"'
  taken
  perform
}

while IFS= read -r line; do case $line in
  *'"decision":"accept"'*) allowed ;;
  *'"decision":"decline"'*) denied ;;
  *'"method":"initialize"'*) ok '"userAgent":"x/1.0 (y)"' ;;
  *'"method":"thread/'*) open ;;
  *'"method":"turn/start"'*) start ;;
  *'"method":"turn/steer"'*) deed >heard; ok '"turnId":"'"$n"'"'; taken ;;
  *'"method":"turn/interrupt"'*) cut_short; ok; turn completed '"status":"interrupted"' ;;
esac; done
