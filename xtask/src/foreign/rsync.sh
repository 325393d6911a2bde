# rsync over ssh: a tree is sent, changed and sent again, and fetched back. Started by services.rs, as root.
set -eu
ip link set lo up
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
chmod 755 "$dir"
mkdir -p /run/sshd from/deep to back
for size in 1 10 1000 100000 700000; do seq $size >from/$size; seq $size | rev >from/deep/$size; done
ssh-keygen -q -t ed25519 -N '' -f host
ssh-keygen -q -t ed25519 -N '' -f mine
cat >conf <<CONF
Port 2222
ListenAddress 127.0.0.1
HostKey $dir/host
AuthorizedKeysFile $dir/mine.pub
PermitRootLogin yes
StrictModes no
UsePAM no
PidFile $dir/pid
CONF
$ON /usr/sbin/sshd -D -e -f "$dir/conf" 2>sshd.log &
server=$!
shell="ssh -p 2222 -i $dir/mine -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR -o BatchMode=yes"
until $shell root@127.0.0.1 true 2>/dev/null; do sleep 0.1; done
same() { (cd "$1" && find . -type f | sort | xargs sha256sum | sha256sum); }

$ON rsync -a -e "$shell" from/ root@127.0.0.1:"$dir/to/"
same from
same to
seq 500000 500100 >>from/100000
rm from/deep/10
$ON rsync -a --delete --no-whole-file -e "$shell" from/ root@127.0.0.1:"$dir/to/"
same from
same to
$ON rsync -az -e "$shell" root@127.0.0.1:"$dir/to/" back/
same back
$ON $shell root@127.0.0.1 "cat $dir/to/700000" | sha256sum
kill $server
wait $server || true
[ -z "$ON" ] || $PULC sockets | grep '^so far'
