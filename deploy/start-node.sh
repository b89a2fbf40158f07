#!/bin/sh
# Start a node of a replica group, or of a ring. All nodes run this script with the same ONCECAST_NODES.
#
#   ONCECAST_NODES            host:port of all nodes, separated by commas
#   ONCECAST_SERVE_ADVERTISE  host:port of this node, one of ONCECAST_NODES
#   ONCECAST_SERVE_DATA       data directory of this node
#   ONCECAST_STATUS_FLAGS     flags for a client of the cluster, such as "--tls-ca ca.pem"
#
# The first of ONCECAST_NODES founds the cluster. If it has lost its data directory, it must not found
# a second cluster. So it first asks the other nodes, and joins them if one of them answers.
set -eu

: "${ONCECAST_NODES:?set it to the host:port of all nodes, separated by commas}"
: "${ONCECAST_SERVE_ADVERTISE:?set it to the host:port of this node}"
: "${ONCECAST_SERVE_DATA:?set it to the data directory of this node}"

others=
for node in $(echo "$ONCECAST_NODES" | tr ',' ' '); do
    [ "$node" = "$ONCECAST_SERVE_ADVERTISE" ] || others="${others:+$others,}$node"
done

answers() {
    status=0
    cluster="${ONCECAST_SERVE_CLUSTER:-oncecast}"
    # shellcheck disable=SC2086 # the flags are separate words
    oncecast status --server "$others" --cluster "$cluster" --timeout 5 ${ONCECAST_STATUS_FLAGS:-} \
        >/dev/null 2>&1 || status=$?
    [ "$status" -eq 0 ] || [ "$status" -eq 5 ] # 5: a node answered, but requires a login
}

if [ -z "$others" ]; then
    :
elif [ "$ONCECAST_SERVE_ADVERTISE" != "${ONCECAST_NODES%%,*}" ]; then
    export ONCECAST_SERVE_JOIN="$others"
elif [ -z "$(ls -A "$ONCECAST_SERVE_DATA" 2>/dev/null)" ] && answers; then
    echo "the data directory is empty, but the cluster exists: joining $others" >&2
    export ONCECAST_SERVE_JOIN="$others"
fi

exec oncecast serve "$@"
