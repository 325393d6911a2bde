# iperf3 with one stream and with four, in both directions, one way and two ways. Started by services.rs; $ON stands before each program.
set -eu
ip link set lo up
$ON iperf3 -s -B 127.0.0.1 -p 5201 >/dev/null &
server=$!
until grep -q ':1451 00000000:0000 0A' /proc/net/tcp; do sleep 0.05; done

# Whether the bytes have come; what is on its way when the client ends is not counted.
ask() {
    $ON iperf3 -c 127.0.0.1 -p 5201 -J "$@" >said
    echo "$*" "$(tr -d ' \t\n' <said | grep -c '"error"' || true) errors"
    tr -d ' \t\n' <said | grep -o '"sum_\(sent\|received\)\(_bidir_reverse\)\?":{[^}]*"bytes":[0-9]*' | sed 's/:{.*"bytes":/ /' |
        awk '{ print $1, ($2 >= 100000000 ? "all" : $2) }'
}

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
for streams in 1 4; do
    ask -P $streams -n 128M
    ask -P $streams -n 128M -R
    ask -P $streams -n 128M -l 1000
    ask -P $streams -n 128M -w 20000
done
kill $server
wait $server || true
[ -z "$ON" ] || $PULC sockets | grep '^so far'
