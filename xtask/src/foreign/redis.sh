# Redis with a replica, a monitor, and a save in the background while clients write. Started by services.rs; $ON stands before each program.
set -eu
ip link set lo up
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
cli() { redis-cli -p "$@"; }

server() {
    port=$1
    shift
    $ON redis-server --port "$port" --bind 127.0.0.1 --save '' --appendonly no --enable-debug-command yes \
        --dir "$dir" --dbfilename "$port.rdb" "$@" >"$port.log" 2>&1 &
    until [ "$(cli "$port" ping 2>/dev/null)" = PONG ]; do sleep 0.05; done
}

# Until the server of a port says this in this part of its report.
until_says() {
    until cli "$1" info "$2" | grep -q "$3"; do sleep 0.05; done
}

server 7001
: >monitor
$ON redis-cli -p 7001 monitor >monitor &
monitor=$!
until grep -q OK monitor; do sleep 0.05; done
awk 'BEGIN { for (i = 0; i < 5000; i++) { v = "v"; n = i % 9; while (n-- > 0) v = v v i; print "SET k" i " " v } }' >commands
$ON redis-cli -p 7001 <commands | sort | uniq -c
server 7002 --replicaof 127.0.0.1 7001
until_says 7002 replication master_link_status:up
$ON redis-benchmark -p 7001 -c 50 -n 20000 -q -t set,get,incr,lpush,rpush,lpop,sadd,hset,zadd,mset >bench1 &
first=$!
cli 7001 bgsave >/dev/null
$ON redis-benchmark -p 7001 -c 7 -P 16 -n 20000 -q -t incr,lpush >bench2
wait $first
until_says 7001 persistence rdb_bgsave_in_progress:0
cli 7001 info persistence | tr -d '\r' | grep rdb_last_bgsave_status
redis-check-rdb 7001.rdb | grep -o 'RDB looks OK'
$ON redis-cli -p 7001 get k4444 | sha256sum
$ON redis-cli -p 7001 lrange mylist 0 -1 | sha256sum
echo "replicas that have everything: $(cli 7001 wait 1 60000)"
echo "keys: $(cli 7001 dbsize) $(cli 7002 dbsize)"
one=$(cli 7001 debug digest)
echo "digest: $one"
[ "$one" = "$(cli 7002 debug digest)" ] && echo "the replica is the same"
until [ "$(grep -c '"SET" "k[0-9]' monitor)" -ge 5000 ]; do sleep 0.05; done
kill $monitor
wait $monitor || true
grep '"SET" "k[0-9]' monitor | sed 's/^[^]]*\] //' | sha256sum
cli 7002 shutdown nosave || true
cli 7001 shutdown nosave || true
wait
[ -z "$ON" ] || $PULC sockets | grep '^so far'
