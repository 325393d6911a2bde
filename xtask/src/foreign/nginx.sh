# nginx with several workers, sendfile, compression, TLS and a reload; curl asks many times over one connection. Started by services.rs.
set -eu
ip link set lo up
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
mkdir files got
: >files/0
echo x >files/1
for size in 100 1000 8000 20000 400000; do seq $size >files/$size; done
openssl req -x509 -newkey rsa:2048 -nodes -keyout key -out cert -days 2 -subj /CN=localhost 2>/dev/null
cat >conf <<CONF
user root root;
daemon off;
worker_processes 2;
pid $dir/pid;
error_log $dir/error.log;
events { worker_connections 256; }
http {
    access_log off;
    sendfile on;
    tcp_nopush on;
    keepalive_requests 10000;
    client_body_temp_path $dir/body;
    proxy_temp_path $dir/proxy;
    fastcgi_temp_path $dir/fastcgi;
    uwsgi_temp_path $dir/uwsgi;
    scgi_temp_path $dir/scgi;
    server {
        listen 127.0.0.1:8080;
        listen 127.0.0.1:8443 ssl;
        ssl_certificate $dir/cert;
        ssl_certificate_key $dir/key;
        root $dir/files;
        location /copied/ { sendfile off; alias $dir/files/; }
        location /small/ { gzip on; gzip_types *; gzip_min_length 1; alias $dir/files/; }
        location /behind/ { proxy_http_version 1.1; proxy_set_header Connection ""; proxy_pass http://127.0.0.1:8080/; }
    }
}
CONF
$ON nginx -e "$dir/error.log" -c "$dir/conf" &
server=$!
until curl -s -o /dev/null http://127.0.0.1:8080/1; do sleep 0.05; done

# All files over one connection, many times.
ask() {
    what=$1
    shift
    for size in 0 1 100 1000 8000 20000 400000; do echo "url = $what/$size?[1-12]"; echo "output = got/$size-#1"; done >asked
    $ON curl -s -k "$@" -K asked -w '%{http_code}\n' | sort | uniq -c
    cat got/* | sha256sum
    rm -f got/*
}

ask http://127.0.0.1:8080
ask http://127.0.0.1:8080/copied
ask http://127.0.0.1:8080/small --compressed
ask http://127.0.0.1:8080/behind
ask https://127.0.0.1:8443
ask https://127.0.0.1:8443/copied -r 7-5000
kill -HUP $server
ask http://127.0.0.1:8080 -H 'Connection: close'
ask http://127.0.0.1:8080/missing
kill -QUIT $server
wait $server
[ -z "$ON" ] || $PULC sockets | grep '^so far'
