#!/bin/sh
# An agent in sh, curl and jq: every dispatch goes to a command on standard input, and what the
# command prints is the result. Its exit code says success or failure.
#
#   export HANDRAIL_TOKEN=$(handrail token create --role agent --agent shell-1)
#   examples/agent.sh shell-1 backend-engineer 'jq -r .bead.title'
set -eu

AGENT=$1 ROLE=$2 COMMAND=$3
API=${HANDRAIL_SERVER:-http://127.0.0.1:8080}/api/v1
DIR=$(mktemp -d)
BEATING=
trap 'kill $BEATING 2>/dev/null || true; rm -rf "$DIR"' EXIT
trap 'exit 0' INT TERM

# A key makes it safe to send the same again: the server does it once.
post() {
    curl -sS --fail-with-body --retry 8 --retry-connrefused --retry-max-time 60 --max-time 90 \
        -H "Authorization: Bearer $HANDRAIL_TOKEN" -H "Idempotency-Key: $AGENT-$$-$(date +%s%N)" \
        --json "$2" "$API$1"
}

# While the command works: one sign of life every 15 seconds, and an end to it when it is in vain.
beat() {
    while sleep 15; do
        post "/dispatches/$ID/heartbeat" "{\"fence\": $FENCE}" > "$DIR/alive.json"
        if [ "$(jq -r .ended "$DIR/alive.json")" = true ]; then kill "$WORK"; fi
    done
}

post /agents "$(jq -n --arg id "$AGENT" --arg role "$ROLE" '{id: $id, roles: [$role]}')" > "$DIR/me.json"
echo "$AGENT works as $ROLE" >&2

while :; do
    CLAIM=$(jq -n --arg id "$AGENT" '{agent_id: $id, wait: 30, holding: []}')
    post /dispatches/claim "$CLAIM" > "$DIR/dispatch.json" || { sleep 5; continue; }
    [ -s "$DIR/dispatch.json" ] || continue
    ID=$(jq -r .id "$DIR/dispatch.json") FENCE=$(jq -r .fence "$DIR/dispatch.json")
    echo "works on $ID" >&2

    sh -c "$COMMAND" < "$DIR/dispatch.json" > "$DIR/said" &
    WORK=$!
    beat &
    BEATING=$!
    if wait "$WORK"; then OUTCOME=success; else OUTCOME=failure; fi
    kill "$BEATING" 2>/dev/null || true

    jq -n --rawfile text "$DIR/said" --argjson fence "$FENCE" --arg outcome "$OUTCOME" \
        '{fence: $fence, outcome: $outcome, text: $text}' > "$DIR/result.json"
    # Late, doubled or foreign is refused with 409 and changes nothing: go on with the next.
    post "/dispatches/$ID/result" "@$DIR/result.json" > "$DIR/taken.json" || cat "$DIR/taken.json" >&2
done
