python=$1
n=0
while [ $n -lt 8 ] && ! mkdir $2/$n 2>/dev/null; do n=$((n + 1)); done
[ $n -lt 8 ] || exec $python my_agent.py
case $((n % 4)) in
0) $python my_agent.py; exit 7 ;;
1) $python my_agent.py; trap '' TERM; setsid sleep 1234 & sleep 1235 ;;
2) printf '%s' '{"messages": [{"role": "user", "content": "hi"}], "max_tokens": 5}' |
   curl -s -H "Authorization: Bearer $OPENAI_API_KEY" -d @- $OPENAI_BASE_URL/chat/completions
   exec $python my_agent.py ;;
*) exec $python my_agent.py ;;
esac
